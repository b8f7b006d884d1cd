#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "sb3_hrl/controller.hpp"
#include "sb3_hrl/low_level.hpp"
#include "sb3_hrl/muscle_interface.hpp"
#include "sb3_hrl/philox.hpp"
#include "sb3_hrl/stable_pd.hpp"

namespace sb3_hrl {

// The controller of one environment with muscles. sb3_hrl.muscle.MuscleControl is the readable twin.
class MuscleController : public Controller {
 public:
  // `interface` and `settings` must outlive it.
  MuscleController(const mjModel* model, const MuscleInterface& interface, const MuscleSettings& settings, int frame_skip);

  static std::size_t n_actions(const MuscleInterface& interface, const MuscleSettings& settings);
  // Packed torques and desired torque, [P + D]; none without a low level.
  static std::size_t n_sample(const MuscleInterface& interface, const MuscleSettings& settings);

  void seed(std::uint64_t seed, std::uint32_t index) override;
  void set_low_level(std::shared_ptr<const LowLevel> low_level) override;
  void reset(const mjModel* model, mjData* data) override;
  void begin_decision() override;
  void begin_step(const mjModel* model, mjData* data, const float* action) override;
  const Question* begin_substep(const mjModel* model, mjData* data, int substep) override;
  void end_substep(const mjModel* model, mjData* data, int substep) override;
  const LowLevel* low_level() const override { return low_level_.get(); }

  const ControlSummary* summary() const override { return &summary_; }
  const MuscleState* muscle_state() const override { return &state_; }
  const float* sample() const override { return sample_.empty() ? nullptr : sample_.data(); }
  std::string get_state() const override;
  void set_state(const std::string& state) override;

 private:
  bool is_hierarchical() const { return settings_->actuation == Actuation::muscle_hrl; }
  void read(const mjModel* model, const mjData* data);
  const Question* ask(const mjModel* model, mjData* data, int substep);
  void relax(mjData* data) const;
  void activate(const mjModel* model, mjData* data) const;
  void count(const mjData* data);

  const MuscleInterface* interface_;
  const MuscleSettings* settings_;
  int frame_skip_;
  StablePd pd_;
  std::shared_ptr<const LowLevel> low_level_;
  Workspace workspace_;
  RandomStream random_;
  bool is_sampling_ = false;  // a decision has begun, and its first task step not yet
  int drawn_ = -1;            // the substep whose numbers are kept; none in the later task steps of a decision
  double weight_ = 1.0;
  Question question_{};
  MuscleState state_;
  ControlSummary summary_, sums_;
  std::vector<double> action_;                    // [n_actions]
  std::vector<double> target_, desired_torque_;   // [D]
  std::vector<double> wanted_;                    // [M]
  std::vector<double> slopes_, arms_;             // [nv], [D]
  std::vector<float> sample_;                     // [n_sample]
};

}  // namespace sb3_hrl
