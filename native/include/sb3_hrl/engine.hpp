#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sb3_hrl/simulation.hpp"
#include "sb3_hrl/task_spec.hpp"
#include "sb3_hrl/thread_pool.hpp"

namespace sb3_hrl {

// Where one step of all environments is written: row e of each array is environment e's. The memory is the caller's.
struct StepArrays {
  double* obs;                   // [E, n_obs]
  double* rewards;               // [E]
  std::uint8_t* terminated;      // [E]
  std::uint8_t* truncated;       // [E]
  double* infos;                 // [E, n_info]
  double* terminal_obs;          // [E, n_obs]
  std::int32_t* n_held;          // [E]
  double* episode_returns;       // [E]
  std::int64_t* episode_lengths; // [E]
  double* reset_infos;           // [E, n_reset_info]
  std::uint8_t* unstable;        // [E]
  float* samples = nullptr;      // [E, n_sample], or null
};

// Many environments of one task, stepped by worker threads in fixed shares. What an environment computes and draws is its own,
// so neither the number of threads nor which of them takes a share changes a result.
class Engine {
 public:
  // Environment e draws from the stream (seed, e). The thread that calls is one of the n_threads.
  Engine(const TaskSpec& spec, std::size_t n_envs, int n_threads, std::uint64_t seed);

  std::size_t n_envs() const { return simulations_.size(); }
  int n_threads() const { return n_threads_; }
  const Task& task() const { return *task_; }
  Simulation& simulation(std::size_t index) { return *simulations_[index]; }
  const Simulation& simulation(std::size_t index) const { return *simulations_[index]; }

  // What turns torques into activations, in every environment; one object for all of them. Throws std::invalid_argument if
  // it was made for other muscles, or the task has none.
  void set_low_level(const std::shared_ptr<const LowLevel>& low_level);

  // Reset the environments indices[0] … indices[n - 1], which must differ; rows of the outputs ([n, n_obs],
  // [n, n_reset_info]) are in the same order. An environment that gets a seed draws from the stream (seed, 0) from now on,
  // so that it goes through the same episodes wherever it stands; the others go on with the stream they have.
  void reset(const std::size_t* indices, const std::optional<std::uint64_t>* seeds, std::size_t n, double* obs,
             double* reset_infos);

  // One step of every environment; `actions` is [E, n_actions]; `n_hold` is [E], or null for no hold (see Simulation::step).
  void step(const float* actions, const std::int32_t* n_hold, double gamma, const StepArrays& out);
  StepRow row(const StepArrays& out, std::size_t index) const;
  // Call call(0) … call(n - 1) in the workers, for work that takes environments through many steps; see ThreadPool::run.
  void run_in_workers(std::size_t n, const ThreadPool::Task& call);
  // For work without physics.
  ThreadPool& pool() { return pool_; }

 private:
  // Call call(i) for i < n, in fixed shares of neighbours. All of them run, then the error of the lowest i is thrown,
  // with `environment(i)` and its step named.
  void run(std::size_t n, const std::function<std::size_t(std::size_t)>& environment,
           const std::function<void(std::size_t)>& call);

  std::shared_ptr<const Task> task_;
  std::vector<std::unique_ptr<Simulation>> simulations_;
  int n_threads_;
  ThreadPool pool_;
};

}  // namespace sb3_hrl
