#include "sb3_hrl/rollout.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

#include "sb3_hrl/errors.hpp"
#include "sb3_hrl/philox.hpp"

namespace sb3_hrl {
namespace {

RandomStream noise_stream(std::uint64_t seed, std::size_t env_index, std::uint64_t decision, std::size_t n_actions) {
  return {seed, static_cast<std::uint32_t>(env_index), RandomPurpose::action, decision * n_actions};
}

// A worker's way through the rollout with the environments [first, first + n).
class Shard {
 public:
  Shard(Engine& engine, const Policy& policy, const RolloutSettings& settings, const RolloutArrays& out, std::size_t first,
        std::size_t n)
      : engine_(engine),
        policy_(policy),
        settings_(settings),
        out_(out),
        first_(first),
        n_(n),
        n_obs_(policy.n_obs()),
        n_actions_(policy.n_actions()),
        terminal_obs_(n_obs_),
        reset_info_(engine.task().n_reset_info()),
        clipped_(n_actions_),
        obs_(settings.n_steps * n * n_obs_),
        means_(settings.n_steps * n * n_actions_),
        actions_(settings.n_steps * n * n_actions_) {}

  void run() {
    const std::unique_ptr<Actor> actor = policy_.make_actor(n_);
    std::vector<RandomStream> noise;
    for (std::size_t i = 0; i < n_; ++i) {
      noise.push_back(noise_stream(settings_.noise_seed, first_ + i, settings_.first_decision, n_actions_));
    }
    for (std::size_t step = 0; step < settings_.n_steps; ++step) {
      // The shard's rows lie one behind the other.
      const double* obs = out_.observations + at(step, first_) * n_obs_;
      float* kept_obs = obs_.data() + step * n_ * n_obs_;
      std::transform(obs, obs + n_ * n_obs_, kept_obs, [](double number) { return static_cast<float>(number); });
      std::copy_n(kept_obs, n_ * n_obs_, actor->obs());
      const float* means = actor->output();
      for (std::size_t i = 0; i < n_; ++i) {
        try {
          draw(step, i, means + i * n_actions_, noise[i]);
          step_environment(step, first_ + i);
        } catch (const std::exception& error) {
          throw NativeError("environment " + std::to_string(first_ + i) + ", step " +
                            std::to_string(engine_.simulation(first_ + i).n_episode_steps()) +
                            " of its episode, step " + std::to_string(step) + " of the rollout: " + error.what());
        }
      }
    }
    const std::size_t n_rows = settings_.n_steps * n_;
    std::vector<float> numbers(n_rows);
    policy_.log_probs(means_.data(), actions_.data(), n_rows, numbers.data());
    scatter(numbers, out_.log_probs);
    policy_.values(obs_.data(), n_rows, numbers.data());
    scatter(numbers, out_.values);
  }

  EpisodeEnds ends;

 private:
  std::size_t at(std::size_t step, std::size_t env_index) const { return step * engine_.n_envs() + env_index; }

  // From [T, n] to the shard's part of [T, E].
  void scatter(const std::vector<float>& numbers, float* out) const {
    for (std::size_t step = 0; step < settings_.n_steps; ++step) {
      std::copy_n(numbers.data() + step * n_, n_, out + at(step, first_));
    }
  }

  // torch.distributions.Normal.rsample: loc + eps * scale.
  void draw(std::size_t step, std::size_t i, const float* means, RandomStream& noise) {
    float* kept_means = means_.data() + (step * n_ + i) * n_actions_;
    float* kept_actions = actions_.data() + (step * n_ + i) * n_actions_;
    for (std::size_t k = 0; k < n_actions_; ++k) {
      if (!std::isfinite(means[k])) throw NativeError("the policy gave an action that is not finite");
      kept_means[k] = means[k];
      kept_actions[k] = means[k] + static_cast<float>(noise.normal()) * policy_.scales()[k];
      clipped_[k] = std::min(std::max(kept_actions[k], settings_.action_low[k]), settings_.action_high[k]);
    }
    std::copy_n(kept_actions, n_actions_, out_.actions + at(step, first_ + i) * n_actions_);
  }

  void step_environment(std::size_t step, std::size_t env_index) {
    const std::size_t here = at(step, env_index);
    double* next_obs = step + 1 < settings_.n_steps ? out_.observations + at(step + 1, env_index) * n_obs_
                                                    : out_.last_observations + env_index * n_obs_;
    double* raw_obs = settings_.normalization != nullptr ? out_.raw_observations + here * n_obs_ : next_obs;
    double reward = 0.0, episode_return = 0.0;
    std::int32_t n_held = 1;
    std::int64_t episode_length = 0;
    std::uint8_t is_unstable = 0;
    const StepRow row{raw_obs,
                      &reward,
                      out_.terminated + here,
                      out_.truncated + here,
                      out_.infos + here * engine_.task().n_info(),
                      terminal_obs_.data(),
                      &n_held,
                      &episode_return,
                      &episode_length,
                      reset_info_.data(),
                      &is_unstable,
                      out_.samples != nullptr ? out_.samples + here * engine_.task().n_sample() : nullptr};
    engine_.step_one(env_index, clipped_.data(), settings_.n_hold != nullptr ? settings_.n_hold[here] : 0, settings_.gamma,
                     row);
    out_.rewards[here] = static_cast<float>(reward);
    out_.n_held[here] = n_held;
    if (settings_.normalization != nullptr) normalize(raw_obs, next_obs);
    if (!*row.terminated && !*row.truncated) return;
    const Instability& instability = engine_.simulation(env_index).instability();
    ends.ends.push_back({step, env_index, episode_return, episode_length, is_unstable != 0, instability.seed,
                         instability.n_total_steps});
    ends.terminal_obs.insert(ends.terminal_obs.end(), terminal_obs_.begin(), terminal_obs_.end());
    ends.reset_infos.insert(ends.reset_infos.end(), reset_info_.begin(), reset_info_.end());
  }

  void normalize(const double* raw_obs, double* obs) const {
    const Normalization& how = *settings_.normalization;
    for (std::size_t k = 0; k < n_obs_; ++k) {
      const double number = (raw_obs[k] - how.means[k]) / how.scales[k];
      obs[k] = static_cast<float>(std::min(std::max(number, -how.clip), how.clip));
    }
  }

  Engine& engine_;
  const Policy& policy_;
  const RolloutSettings& settings_;
  const RolloutArrays& out_;
  const std::size_t first_, n_, n_obs_, n_actions_;
  std::vector<double> terminal_obs_, reset_info_;
  std::vector<float> clipped_;          // [n_actions]
  std::vector<float> obs_;              // [T, n, n_obs], as the policy takes them
  std::vector<float> means_, actions_;  // [T, n, n_actions]
};

// The shards' episodes as one list, in the order in which they would have ended step by step.
EpisodeEnds merge(const std::vector<EpisodeEnds>& parts, std::size_t n_obs, std::size_t n_reset_info) {
  struct Place {
    const EpisodeEnds* part;
    std::size_t index;
    const EpisodeEnd& end() const { return part->ends[index]; }
  };
  std::vector<Place> places;
  for (const EpisodeEnds& part : parts) {
    for (std::size_t i = 0; i < part.ends.size(); ++i) places.push_back({&part, i});
  }
  std::stable_sort(places.begin(), places.end(), [](const Place& left, const Place& right) {
    return left.end().step != right.end().step ? left.end().step < right.end().step
                                               : left.end().env_index < right.end().env_index;
  });
  EpisodeEnds merged;
  for (const Place& place : places) {
    merged.ends.push_back(place.end());
    const auto obs = place.part->terminal_obs.begin() + static_cast<std::ptrdiff_t>(place.index * n_obs);
    merged.terminal_obs.insert(merged.terminal_obs.end(), obs, obs + static_cast<std::ptrdiff_t>(n_obs));
    const auto info = place.part->reset_infos.begin() + static_cast<std::ptrdiff_t>(place.index * n_reset_info);
    merged.reset_infos.insert(merged.reset_infos.end(), info, info + static_cast<std::ptrdiff_t>(n_reset_info));
  }
  return merged;
}

}  // namespace

void action_noise(std::uint64_t seed, std::uint64_t first_decision, std::size_t n_steps, std::size_t n_envs,
                  std::size_t n_actions, float* noise) {
  for (std::size_t env_index = 0; env_index < n_envs; ++env_index) {
    RandomStream stream = noise_stream(seed, env_index, first_decision, n_actions);
    for (std::size_t step = 0; step < n_steps; ++step) {
      float* row = noise + (step * n_envs + env_index) * n_actions;
      std::generate_n(row, n_actions, [&] { return static_cast<float>(stream.normal()); });
    }
  }
}

EpisodeEnds collect_rollout(Engine& engine, const Policy& policy, const RolloutSettings& settings, const RolloutArrays& out,
                            const std::function<void(const std::function<void()>&)>& in_worker) {
  const std::size_t n_envs = engine.n_envs(), size = settings.shard_size;
  if (policy.n_obs() != engine.task().n_obs() || policy.n_actions() != engine.task().n_actions()) {
    throw std::invalid_argument("the policy is for " + std::to_string(policy.n_obs()) + " observations and " +
                                std::to_string(policy.n_actions()) + " actions, the task has " +
                                std::to_string(engine.task().n_obs()) + " and " + std::to_string(engine.task().n_actions()));
  }
  if (size < 1) throw std::invalid_argument("shard_size must be one or more");
  const std::size_t n_shards = (n_envs + size - 1) / size;
  std::vector<EpisodeEnds> parts(n_shards);
  engine.pool().run(n_shards, [&](std::size_t index) {
    in_worker([&] {
      Shard shard(engine, policy, settings, out, index * size, std::min(size, n_envs - index * size));
      shard.run();
      parts[index] = std::move(shard.ends);
    });
  });
  return merge(parts, policy.n_obs(), engine.task().n_reset_info());
}

}  // namespace sb3_hrl
