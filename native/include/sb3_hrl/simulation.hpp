#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sb3_hrl/controller.hpp"
#include "sb3_hrl/mujoco_handle.hpp"
#include "sb3_hrl/philox.hpp"
#include "sb3_hrl/task.hpp"

namespace sb3_hrl {

// Where one step of one environment is written; the memory is the caller's.
struct StepRow {
  double* obs;                    // [n_obs], after the reset if the episode ended
  double* reward;                 // [1]
  std::uint8_t* terminated;       // [1]
  std::uint8_t* truncated;        // [1], the time limit; may coincide with `terminated`
  double* info;                   // [n_info], before the reset
  double* terminal_obs;           // [n_obs], only written when the episode ended, as all that follows but n_held, unstable
  std::int32_t* n_held;           // [1]
  double* episode_return;         // [1], undiscounted, in the task's own steps
  std::int64_t* episode_length;   // [1]
  double* reset_info;             // [n_reset_info]
  std::uint8_t* unstable;         // [1]
  float* sample = nullptr;        // [n_sample], of a substep of the first task step, NaN if that broke down; or null
};

// How often and when last an environment's physics broke down.
struct Instability {
  std::uint64_t n_events = 0;
  std::uint64_t seed = 0;
  std::uint64_t n_episode_steps = 0;  // the step of its episode, from 1
  std::uint64_t n_total_steps = 0;    // all steps of the environment
};

// One environment.
class Simulation {
 public:
  Simulation(std::shared_ptr<const Task> task, RandomStream random);

  void seed(RandomStream random);
  void set_controller(std::unique_ptr<Controller> controller) { controller_ = std::move(controller); }

  // See Controller::set_low_level.
  void set_low_level(std::shared_ptr<const LowLevel> low_level);

  // Begin an episode. Arrays: [n_obs], [n_reset_info].
  void reset(double* obs, double* reset_info);

  // Take `action` ([n_actions]), and hold it for up to `n_hold` steps of the task; an episode that ends is reset at once. The
  // reward is sum(gamma**i * reward_i); with n_hold == 0 it is one step, and its reward as it is.
  // A simulation that breaks down ends its episode: `unstable` and `terminated` are set, the reward of that step is zero, its
  // info is NaN and the terminal observation is the last finite one.
  void step(const float* action, int n_hold, double gamma, const StepRow& row);

  // The same in parts, for environments that ask their low level together: a decision begins; then, until the latter says that
  // it is over, a substep begins, its question (if any) is answered, and it ends. `action` and what `row` points to must last.
  void begin_decision(const float* action, int n_hold, double gamma, const StepRow& row);
  const Question* begin_substep();
  bool end_substep();
  // See LowLevel::n_together; one without a low level.
  std::size_t n_together() const;

  // Everything that the future depends on, as bytes.
  std::string get_state() const;
  // Throws std::invalid_argument when the bytes do not have the length of this task's state.
  void set_state(const std::string& state);

  std::size_t n_qpos() const { return static_cast<std::size_t>(task_->model()->nq); }
  std::size_t n_qvel() const { return static_cast<std::size_t>(task_->model()->nv); }
  void get_qpos_qvel(double* qpos, double* qvel) const;
  // MuJoCo's integration state: positions and velocities, and also time, activations, mocap bodies, the task's memory.
  std::size_t n_physics() const;
  void get_physics(double* state) const;
  // Begin an episode from that state.
  void set_qpos_qvel(const double* qpos, const double* qvel, double* obs);
  void observe(double* obs) const;

  // Of the last step; null without muscles.
  const ControlSummary* summary() const { return controller_ ? controller_->summary() : nullptr; }
  std::uint64_t n_episode_steps() const { return counters_.n_episode_steps; }
  const Instability& instability() const { return counters_.instability; }

 private:
  struct Counters {
    std::uint64_t n_episode_steps = 0;
    std::uint64_t n_total_steps = 0;
    double episode_return = 0.0;
    std::uint64_t is_ready = 0;  // reset, and no exception since
    Instability instability;
  };
  struct Outcome {
    double reward = 0.0;
    bool is_terminated = false;
    bool is_truncated = false;
    bool is_unstable = false;
    bool is_done() const { return is_terminated || is_truncated; }
  };

  // The decision under way.
  struct Decision {
    const float* action = nullptr;
    int n_hold = 0;
    double gamma = 1.0;
    StepRow row{};
    int n_held = 0;  // task steps that are over
    int substep = 0;
    double reward = 0.0;
  };

  void begin_episode();
  void begin_task_step();
  bool end_task_step(bool is_sound);
  Outcome conclude(bool is_sound);
  bool evaluate(const float* action, const StepRow& row);
  bool has_broken_down() const;
  void break_down(const StepRow& row);

  std::shared_ptr<const Task> task_;
  DataHandle data_;
  std::unique_ptr<Controller> controller_;
  RandomStream random_;
  Counters counters_;
  Decision decision_;
  std::vector<double> before_, values_;  // [n_values]
  std::vector<double> last_obs_;         // [n_obs], the last finite one
};

}  // namespace sb3_hrl
