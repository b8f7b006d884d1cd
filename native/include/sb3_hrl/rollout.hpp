#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "sb3_hrl/engine.hpp"
#include "sb3_hrl/policy.hpp"

namespace sb3_hrl {

// Where a rollout is written, row [t, e] of each array by environment e at step t. The memory is the caller's.
struct RolloutArrays {
  double* observations;       // [T, E, n_obs], what the policy saw; row 0 is an input
  float* actions;             // [T, E, n_actions], not clipped
  float* rewards;             // [T, E]
  float* log_probs;           // [T, E]
  float* values;              // [T, E], of `observations`
  std::int64_t* n_held;       // [T, E]
  std::uint8_t* terminated;   // [T, E]
  std::uint8_t* truncated;    // [T, E]
  double* infos;              // [T, E, n_info]
  double* last_observations;  // [E, n_obs], what the policy would see next
  double* raw_observations;   // [T, E, n_obs], after each step and not normalised; null without normalisation
  float* samples = nullptr;   // [T, E, n_sample], for the muscles' learner; null if nobody wants them
};

// How VecNormalize changes an observation: float32(clip((obs - means) / scales, -clip, clip)).
struct Normalization {
  const double* means;   // [n_obs]
  const double* scales;  // [n_obs]
  double clip;
};

struct RolloutSettings {
  std::size_t n_steps;
  std::size_t shard_size;        // environments of one worker at a time: the last bits depend on it
  const float* action_low;       // [n_actions]
  const float* action_high;      // [n_actions]
  const std::int32_t* n_hold;    // [T, E], or null for no hold
  double gamma;                  // inside the hold
  const Normalization* normalization;  // or null
  std::uint64_t noise_seed;
  std::uint64_t first_decision;  // how many decisions were drawn with this seed before
};

// An episode that ended in the rollout.
struct EpisodeEnd {
  std::size_t step;
  std::size_t env_index;
  double episode_return;
  std::int64_t episode_length;
  bool is_unstable;
  std::uint64_t seed;           // the last two, only if it is unstable: as in Instability
  std::uint64_t n_total_steps;
};
struct EpisodeEnds {
  std::vector<EpisodeEnd> ends;      // by step, then by environment
  std::vector<double> terminal_obs;  // [n, n_obs], not normalised
  std::vector<double> reset_infos;   // [n, n_reset_info]
};

// Standard normal numbers [T, E, n_actions] that the actions are drawn with: environment e has a stream of its own, and a
// decision has a fixed place in it.
void action_noise(std::uint64_t seed, std::uint64_t first_decision, std::size_t n_steps, std::size_t n_envs,
                  std::size_t n_actions, float* noise);

// Take n_steps decisions in every environment. A worker takes a shard of environments through the whole rollout before it
// takes the next, so nobody waits for the others' steps. `in_worker` is called around each shard's work in its thread.
// Throws NativeError with environment and step if one fails; the other shards finish.
EpisodeEnds collect_rollout(Engine& engine, const Policy& policy, const RolloutSettings& settings, const RolloutArrays& out,
                            const std::function<void(const std::function<void()>&)>& in_worker);

}  // namespace sb3_hrl
