#pragma once

#include <mujoco/mujoco.h>

#include <array>
#include <cstddef>
#include <vector>

#include "sb3_hrl/muscle_settings.hpp"

namespace sb3_hrl {

// What the muscles can do in one pose.
struct MuscleState {
  std::vector<double> torque_per_activation;  // [D, M], Nm: the torque of each muscle at activation one
  std::vector<double> packed;                 // [P], its entries that are not structurally zero, muscle by muscle
  std::vector<double> passive_torque;         // [D], Nm: what the muscles do without activation
  std::vector<double> torque_low;             // [D], Nm: the least that activations in [0, 1] can add
  std::vector<double> torque_high;            // [D], Nm: the most
};

// The muscles of a model and the coordinates that they drive; read-only, so that all environments share one. A joint that an
// equality ties to another counts where it follows (T' f with T = dq / dq_independent). sb3_hrl.muscle.MuscleInterface is the
// readable twin; it also checks that the model's torques are what the muscles make, which is not repeated here.
class MuscleInterface {
 public:
  // Throws std::invalid_argument.
  MuscleInterface(const mjModel* model, const MuscleSettings& settings);

  std::size_t n_muscles() const { return muscles_.size(); }
  std::size_t n_coords() const { return dofs_.size(); }
  std::size_t n_packed() const { return n_packed_; }
  const std::vector<int>& dofs() const { return dofs_; }            // [D]
  const std::vector<int>& positions() const { return positions_; }  // [D], in qpos
  bool has_couplings() const { return !couplings_.empty(); }
  // For every degree of freedom the place, among the independent ones, of the one that it follows; -1 for none.
  const std::vector<int>& places() const { return places_; }
  std::size_t n_independent() const { return n_independent_; }

  int control(std::size_t muscle) const { return muscles_[muscle].control; }        // in ctrl
  int activation(std::size_t muscle) const { return muscles_[muscle].activation; }  // in act
  double rise_seconds(std::size_t muscle) const { return muscles_[muscle].rise_seconds; }
  double fall_seconds(std::size_t muscle) const { return muscles_[muscle].fall_seconds; }

  MuscleState make_state() const;
  // [nv]: for every degree of freedom its derivative by the one that it follows, the non-zero entries of T.
  void slopes(const mjModel* model, const mjData* data, double* slopes) const;
  // After mj_step1. `slopes` is [nv], read only where joints are coupled; `arms` is room for [D].
  void read(const mjModel* model, const mjData* data, const double* slopes, double* arms, MuscleState& state) const;

 private:
  struct Muscle {
    int actuator, output, control, activation;
    bool has_bias;
    double rise_seconds, fall_seconds;
    std::vector<std::size_t> coords;  // of the pattern
  };
  // q - q0 = sum(c_k (other - other0)^k)
  struct Coupling {
    int dof, other_dof, other_position;  // the last two -1 for none
    std::array<double, 5> coefficients;
  };

  void find_muscles(const mjModel* model);
  void find_couplings(const mjModel* model);
  void set_pattern(const std::vector<int>& pattern);

  std::vector<Muscle> muscles_;
  std::vector<Coupling> couplings_;  // each after the one that it follows
  std::vector<int> dofs_, positions_, places_;
  std::vector<int> coordinates_;  // [nv], the coordinate that a degree of freedom belongs to; -1 for none
  std::size_t n_packed_ = 0, n_independent_ = 0;
};

}  // namespace sb3_hrl
