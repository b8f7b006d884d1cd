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
  float* actions;             // [T, E, n_actions] of the policy: not clipped, squashed or the number of a choice
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

// How a policy's action becomes controls: a choice is one of `rows`; else there are two, and what is squashed is stretched to
// the range from the first to the second, all else clipped to it.
struct Controls {
  const float* rows;  // [n_choices or 2, n_controls]
  std::size_t n_choices;  // zero if actions are not a choice
};

struct RolloutSettings {
  std::size_t n_steps;
  std::size_t shard_size;              // environments of one worker at a time: the last bits depend on it
  Controls controls;
  const std::int32_t* n_hold;          // [T, E], or null for no hold
  double gamma;                        // inside the hold
  const Normalization* normalization;  // or null
  const float* noise;                  // [T, E, n_noise], or null: then it is drawn
  std::uint64_t noise_seed;
  std::uint64_t first_decision;        // how many decisions were drawn with this seed before
  std::size_t noise_sample_freq;       // decisions that a draw serves if the policy keeps noise; zero for the whole rollout
  const std::int64_t* n_unstable_in_a_row;  // [E], the last episodes of each environment that broke down
  std::int64_t max_unstable_in_a_row;       // so many stop the rollout
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

// Random numbers [T, E, n_noise] that the actions are drawn with: environment e has a stream of its own, and a decision has a
// fixed place in it.
void action_noise(NoiseKind kind, std::uint64_t seed, std::uint64_t first_decision, std::size_t n_steps, std::size_t n_envs,
                  std::size_t n_noise, float* noise);

// Take n_steps decisions in every environment. A worker takes a shard of environments through a piece of the rollout and then
// another shard, so nobody waits for the others' steps. `in_worker` is called around the work in each thread.
// Throws NativeError with environment and step if one fails, or breaks down in too many episodes in a row; the other shards
// finish.
EpisodeEnds collect_rollout(Engine& engine, Policy& policy, const RolloutSettings& settings, const RolloutArrays& out,
                            const std::function<void(const std::function<void()>&)>& in_worker);

}  // namespace sb3_hrl
