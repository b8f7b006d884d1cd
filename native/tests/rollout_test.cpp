// The rollout with a policy that needs no torch, so that the sanitizers see all of it.

#include "rollout_test.hpp"

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "check.hpp"
#include "sb3_hrl/errors.hpp"
#include "sb3_hrl/rollout.hpp"

namespace sb3_hrl::test {
namespace {

// Mean: a tenth of the sum of the observation. Value: its first number.
class SumPolicy : public Policy {
 public:
  explicit SumPolicy(std::size_t n_obs) : n_obs_(n_obs) {}
  std::size_t n_obs() const override { return n_obs_; }
  std::size_t n_actions() const override { return 1; }
  std::size_t n_choices() const override { return 0; }
  std::size_t n_outputs() const override { return 1; }
  std::size_t n_noise() const override { return 1; }
  NoiseKind noise_kind() const override { return NoiseKind::normal; }
  bool keeps_noise() const override { return false; }
  bool is_squashed() const override { return false; }
  void take_weights() override {}
  std::unique_ptr<Actor> make_actor(std::size_t n_rows, Products) const override {
    return std::make_unique<SumActor>(n_rows, n_obs_);
  }
  void log_probs(const float* means, const float* actions, std::size_t n, float* log_probs) const override {
    std::transform(means, means + n, actions, log_probs, [](float mean, float action) { return action - mean; });
  }
  void values(const float* obs, std::size_t n, std::size_t, float* values) const override {
    for (std::size_t i = 0; i < n; ++i) values[i] = obs[i * n_obs_];
  }

 private:
  class SumActor : public Actor {
   public:
    SumActor(std::size_t n_rows, std::size_t n_obs) : obs_(n_rows * n_obs), output_(n_rows) {}
    float* obs() override { return obs_.data(); }
    const float* act(const float* noise, float* actions) override {
      const auto n_obs = static_cast<std::ptrdiff_t>(obs_.size() / output_.size());
      for (auto [row, i] = std::pair(obs_.begin(), std::size_t{0}); row != obs_.end(); row += n_obs) {
        output_[i] = 0.1f * std::accumulate(row, row + n_obs, 0.0f);
        actions[i] = output_[i] + 0.5f * noise[i];
        ++i;
      }
      return output_.data();
    }

   private:
    std::vector<float> obs_, output_;
  };

  std::size_t n_obs_;
};

struct Rollout {
  std::vector<double> numbers;
  EpisodeEnds ends;
};

// A rollout of seven environments; all that it writes, one after the other.
Rollout roll(const TaskSpec& spec, int n_threads, std::size_t shard_size, bool is_reset = true,
             const float* noise = nullptr) {
  constexpr std::size_t kSteps = 50, kEnvs = 7, kRows = kSteps * kEnvs;
  Engine engine(spec, kEnvs, n_threads, 5);
  const std::size_t n_obs = engine.task().n_obs();
  std::vector<double> observations(kRows * n_obs), infos(kRows * engine.task().n_info()), last(kEnvs * n_obs), raw(kRows * n_obs);
  std::vector<float> actions(kRows), rewards(kRows), log_probs(kRows), values(kRows);
  std::vector<std::int64_t> n_held(kRows);
  std::vector<std::uint8_t> terminated(kRows), truncated(kRows);
  std::vector<std::int32_t> n_hold(kRows);
  for (std::size_t i = 0; i < kRows; ++i) n_hold[i] = static_cast<std::int32_t>(i % 3) + 1;
  std::vector<std::size_t> indices(kEnvs);
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  std::vector<double> reset_infos(kEnvs * engine.task().n_reset_info());
  if (is_reset) engine.reset(indices.data(), nullptr, kEnvs, observations.data(), reset_infos.data());
  const std::vector<double> means(n_obs, 0.1), scales(n_obs, 2.0);
  const Normalization normalization{means.data(), scales.data(), 1.5};
  const float range[] = {-1.0f, 1.0f};
  const std::vector<std::int64_t> n_unstable(kEnvs);
  const RolloutSettings settings{kSteps, shard_size, {range, 0}, n_hold.data(), 0.9, &normalization,
                                 noise, 11, 3, 0, n_unstable.data(), 10};
  const RolloutArrays out{observations.data(), actions.data(),    rewards.data(),   log_probs.data(), values.data(), n_held.data(),
                          terminated.data(),   truncated.data(), infos.data(), last.data(),      raw.data()};
  Rollout rollout;
  SumPolicy policy(n_obs);
  rollout.ends = collect_rollout(engine, policy, settings, out, [](const std::function<void()>& work) { work(); });
  const auto add = [&](const auto& array) { rollout.numbers.insert(rollout.numbers.end(), array.begin(), array.end()); };
  add(observations), add(infos), add(last), add(raw), add(terminated), add(truncated);
  add(actions), add(rewards), add(log_probs), add(values);
  for (const std::int64_t n : n_held) rollout.numbers.push_back(static_cast<double>(n));
  add(rollout.ends.terminal_obs), add(rollout.ends.reset_infos);
  for (const EpisodeEnd& end : rollout.ends.ends) {
    rollout.numbers.push_back(static_cast<double>(end.step * kEnvs + end.env_index));
    rollout.numbers.push_back(end.episode_return);
    rollout.numbers.push_back(static_cast<double>(end.episode_length));
  }
  return rollout;
}

void threads_and_shards_change_nothing(const TaskSpec& spec) {
  // This policy treats its rows one by one, so that the size of a shard changes nothing either.
  const Rollout alone = roll(spec, 1, 7);
  CHECK_EQUAL(alone.ends.ends.size() > 10, true);
  for (const auto& [n_threads, shard_size] : {std::pair<int, std::size_t>{1, 2}, {2, 2}, {3, 1}, {8, 3}, {2, 100}}) {
    CHECK_EQUAL(roll(spec, n_threads, shard_size).numbers == alone.numbers, true);
  }
  TaskSpec other = spec;
  other.frame_skip += 1;
  CHECK_EQUAL(roll(other, 1, 7).numbers == alone.numbers, false);
}

void episodes_are_in_order(const TaskSpec& spec) {
  const std::vector<EpisodeEnd> ends = roll(spec, 3, 2).ends.ends;
  CHECK_EQUAL(std::is_sorted(ends.begin(), ends.end(), [](const EpisodeEnd& left, const EpisodeEnd& right) {
    return std::pair(left.step, left.env_index) < std::pair(right.step, right.env_index);
  }), true);
}

void an_error_names_environment_and_steps(const TaskSpec& spec) {
  CHECK_EQUAL(message_of<NativeError>([&] { roll(spec, 2, 3, false); }),
              std::string("environment 0, step 0 of its episode, step 0 of the rollout: it must be reset before it can step"));
  CHECK_EQUAL(message_of<std::invalid_argument>([&] { roll(spec, 2, 0); }), std::string("shard_size must be one or more"));
}

void noise_has_a_place_for_every_decision() {
  std::vector<float> all(20 * 3 * 2), later(15 * 3 * 2);
  action_noise(NoiseKind::normal, 7, 0, 20, 3, 2, all.data());
  action_noise(NoiseKind::normal, 7, 5, 15, 3, 2, later.data());
  CHECK_EQUAL(std::equal(later.begin(), later.end(), all.begin() + 5 * 3 * 2), true);
  action_noise(NoiseKind::normal, 8, 5, 15, 3, 2, later.data());
  CHECK_EQUAL(std::equal(later.begin(), later.end(), all.begin() + 5 * 3 * 2), false);
}

void noise_may_be_given(const TaskSpec& spec) {
  std::vector<float> noise(50 * 7);
  action_noise(NoiseKind::normal, 11, 3, 50, 7, 1, noise.data());
  CHECK_EQUAL(roll(spec, 2, 3, true, noise.data()).numbers == roll(spec, 1, 7).numbers, true);
  noise.back() += 1.0f;
  CHECK_EQUAL(roll(spec, 2, 3, true, noise.data()).numbers == roll(spec, 1, 7).numbers, false);
  action_noise(NoiseKind::uniform, 11, 3, 50, 7, 1, noise.data());
  CHECK_EQUAL(*std::min_element(noise.begin(), noise.end()) >= 0.0f, true);
  CHECK_EQUAL(*std::max_element(noise.begin(), noise.end()) <= 1.0f, true);
}

}  // namespace

void add_rollout_tests(std::map<std::string, std::function<void()>>& tests, const TaskSpec& spec) {
  tests["rollout: threads and shards change nothing"] = [spec] { threads_and_shards_change_nothing(spec); };
  tests["rollout: episodes are in order"] = [spec] { episodes_are_in_order(spec); };
  tests["rollout: an error names environment and steps"] = [spec] { an_error_names_environment_and_steps(spec); };
  tests["rollout: noise may be given"] = [spec] { noise_may_be_given(spec); };
  tests["rollout: noise has a place for every decision"] = noise_has_a_place_for_every_decision;
}

}  // namespace sb3_hrl::test
