#pragma once

#include <cstddef>
#include <vector>

#include "sb3_hrl/muscle_interface.hpp"

namespace sb3_hrl {

// Room that a low level needs to work for one environment.
struct Workspace {
  std::vector<double> doubles;
  std::vector<float> floats;
};

class LowLevel;

// What one environment asks its low level at a substep, and where the answer goes.
struct Question {
  const LowLevel* low_level;
  const MuscleState* state;
  const double* desired_torque;  // [D], Nm: what activations must add to the passive torque
  double weight;                 // of a cascade's last level, in [0, 1]
  Workspace* workspace;
  double* activation;  // [M], written
};

// What turns torques into activations. It does not change while workers use it: all environments share one.
class LowLevel {
 public:
  virtual ~LowLevel() = default;
  // Whether the desired torque is applied itself, without muscles.
  virtual bool is_torque() const { return false; }
  // Throws std::invalid_argument if it was made for other muscles.
  virtual void check(const MuscleInterface&) const {}
  virtual Workspace make_workspace(const MuscleInterface&) const { return {}; }
  // How many environments it is best asked for at once.
  virtual std::size_t n_together() const { return 1; }
  // The answers do not depend on who else asks.
  virtual void activate(const Question* questions, std::size_t n) const = 0;
};

// The activations in [0, 1] that come nearest to the torque, by a bounded quadratic programme:
//   min |(torque_per_activation a - desired_torque) / torque_scale|^2 + effort |a|^2
class QpLowLevel : public LowLevel {
 public:
  // Both > 0; throws std::invalid_argument.
  QpLowLevel(double torque_scale, double effort);
  Workspace make_workspace(const MuscleInterface& interface) const override;
  void activate(const Question* questions, std::size_t n) const override;

 private:
  void activate(const Question& question) const;

  double torque_scale_, effort_;
};

// No muscles: the desired torque itself.
class TorqueLowLevel : public LowLevel {
 public:
  bool is_torque() const override { return true; }
  void activate(const Question* questions, std::size_t n) const override;
};

}  // namespace sb3_hrl
