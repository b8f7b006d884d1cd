#include "sb3_hrl/engine.hpp"

#include <algorithm>
#include <exception>
#include <stdexcept>

#include "sb3_hrl/errors.hpp"

namespace sb3_hrl {
namespace {

// More shares than threads: a thread that wakes late then finds less to do, instead of keeping the others waiting.
constexpr std::size_t kSharesPerThread = 8;

}  // namespace

Engine::Engine(const TaskSpec& spec, std::size_t n_envs, int n_threads, std::uint64_t seed)
    : task_(std::make_shared<const Task>(spec)),
      n_threads_(n_threads),
      pool_(std::max(n_threads - 1, 0), ThreadPool::Caller::works) {
  if (n_threads < 1) throw std::invalid_argument("n_threads must be one or more, not " + std::to_string(n_threads));
  for (std::size_t i = 0; i < n_envs; ++i) {
    simulations_.push_back(std::make_unique<Simulation>(task_, RandomStream(seed, static_cast<std::uint32_t>(i))));
  }
}

void Engine::run(std::size_t n, const std::function<std::size_t(std::size_t)>& environment,
                 const std::function<void(std::size_t)>& call) {
  const std::size_t n_shares = n_threads_ == 1 ? 1 : std::min(kSharesPerThread * static_cast<std::size_t>(n_threads_), n);
  run_in_workers(n_shares, [&](std::size_t share) {
    std::exception_ptr first_error;
    for (std::size_t i = share * n / n_shares; i < (share + 1) * n / n_shares; ++i) {
      try {
        call(i);
      } catch (const std::exception& error) {
        if (first_error) continue;
        const std::size_t index = environment(i);
        first_error = std::make_exception_ptr(
            NativeError("environment " + std::to_string(index) + ", step " +
                        std::to_string(simulations_[index]->n_episode_steps()) + " of its episode: " + error.what()));
      }
    }
    if (first_error) std::rethrow_exception(first_error);
  });
}

void Engine::run_in_workers(std::size_t n, const ThreadPool::Task& call) {
  const NoTimers guard;
  pool_.run(n, call);
}

void Engine::set_low_level(const std::shared_ptr<const LowLevel>& low_level) {
  for (const auto& simulation : simulations_) simulation->set_low_level(low_level);
}

void Engine::reset(const std::size_t* indices, const std::optional<std::uint64_t>* seeds, std::size_t n, double* obs,
                   double* reset_infos) {
  run(n, [&](std::size_t i) { return indices[i]; },
      [&](std::size_t i) {
        Simulation& simulation = *simulations_[indices[i]];
        if (seeds != nullptr && seeds[i]) simulation.seed(RandomStream(*seeds[i], 0));
        simulation.reset(obs + i * task_->n_obs(), reset_infos + i * task_->n_reset_info());
      });
}

void Engine::step(const float* actions, const std::int32_t* n_hold, double gamma, const StepArrays& out) {
  run(n_envs(), [](std::size_t i) { return i; },
      [&](std::size_t i) {
        simulations_[i]->step(actions + i * task_->n_actions(), n_hold != nullptr ? n_hold[i] : 0, gamma, row(out, i));
      });
}

StepRow Engine::row(const StepArrays& out, std::size_t index) const {
  return {out.obs + index * task_->n_obs(),
          out.rewards + index,
          out.terminated + index,
          out.truncated + index,
          out.infos + index * task_->n_info(),
          out.terminal_obs + index * task_->n_obs(),
          out.n_held + index,
          out.episode_returns + index,
          out.episode_lengths + index,
          out.reset_infos + index * task_->n_reset_info(),
          out.unstable + index,
          out.samples != nullptr ? out.samples + index * task_->n_sample() : nullptr};
}

}  // namespace sb3_hrl
