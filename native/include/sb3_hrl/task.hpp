#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "sb3_hrl/collision_list.hpp"
#include "sb3_hrl/controller.hpp"
#include "sb3_hrl/mujoco_handle.hpp"
#include "sb3_hrl/muscle_interface.hpp"
#include "sb3_hrl/task_spec.hpp"
#include "sb3_hrl/terms.hpp"

namespace sb3_hrl {

// A task that can be run: the model and the functions, both read-only, so that all simulations and threads share one.
class Task {
 public:
  // Throws std::invalid_argument; for a term the message begins with its place, such as "values[3]: ".
  explicit Task(const TaskSpec& spec);
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;

  const mjModel* model() const { return model_.get(); }
  int frame_skip() const { return frame_skip_; }
  int max_episode_steps() const { return max_episode_steps_; }
  std::size_t n_obs() const { return n_obs_; }
  std::size_t n_actions() const { return n_actions_; }
  std::size_t n_sample() const { return n_sample_; }  // of a decision, for the muscles' learner
  std::size_t n_values() const { return values_.size(); }
  std::size_t n_info() const { return n_info_; }
  std::size_t n_reset_info() const { return n_reset_info_; }
  std::vector<std::size_t> array_sizes() const;

  // mj_rnePostConstraint is only called when a term reads what it computes.
  bool needs_post_step() const { return needs_post_step_; }
  // What a term reads and mjSTATE_INTEGRATION does not hold: the rest of a simulation's state.
  const std::vector<const Field*>& derived_fields() const { return derived_fields_; }

  // For one environment; null where the action is the control. The task must outlive it.
  std::unique_ptr<Controller> make_controller() const;

  void observe(const Moment& now, double* obs) const;
  // Write the values that `rate` compares, before the first substep. `before` is [n_values].
  void evaluate_before(const mjData* data, const Controller* controller, double* before) const;
  // Write all values, after the last substep. `values` is [n_values].
  void evaluate(const mjData* data, const Controller* controller, const float* action, const double* before,
                double* values) const;
  double reward(const double* values) const { return values[reward_]; }
  bool is_terminated(const double* values) const { return healthy_ >= 0 && values[healthy_] == 0.0; }
  void write_info(const Moment& now, double* info) const;
  // `values` is room for [n_values].
  void write_reset_info(const mjData* data, const Controller* controller, double* values, double* reset_info) const;
  void reset_state(RandomStream& random, mjData* data) const;

 private:
  struct Info {
    bool is_array;
    std::size_t index;
    std::size_t column;
  };

  void make_muscles();
  void make_terms(const TaskSpec& spec);
  void check_references(const TaskSpec& spec) const;
  std::size_t lay_out(const std::vector<InfoSpec>& specs, std::vector<Info>& infos) const;
  std::vector<std::size_t> with_what_they_need(const std::vector<std::size_t>& values) const;
  void evaluate_some(const std::vector<std::size_t>& positions, const Moment& now, double* values) const;
  void write(const std::vector<Info>& infos, const Moment& now, double* row) const;
  void collect_needs();

  ModelHandle model_;
  CollisionList collisions_;
  int frame_skip_;
  int max_episode_steps_;
  std::size_t reward_;
  int healthy_;
  std::vector<ArrayTerm> observation_, arrays_;
  std::vector<ValueTerm> values_;
  std::vector<ResetFunction> reset_;
  std::vector<Info> info_, reset_info_;
  std::vector<std::size_t> before_values_, reset_values_;  // positions, in the order of evaluation
  std::optional<MuscleSettings> muscle_settings_;
  std::unique_ptr<const MuscleInterface> muscles_;
  std::size_t n_obs_ = 0, n_actions_ = 0, n_sample_ = 0, n_info_ = 0, n_reset_info_ = 0;
  std::vector<const Field*> derived_fields_;
  bool needs_post_step_ = false;
};

}  // namespace sb3_hrl
