#include "sb3_hrl/rollout.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "sb3_hrl/errors.hpp"
#include "sb3_hrl/low_level.hpp"
#include "sb3_hrl/philox.hpp"

namespace sb3_hrl {
namespace {

// Rows of one forward pass of the value function: enough for the matrix products, and still in the cache.
constexpr std::size_t kValueRows = 512;

// The random numbers of one decision of one environment.
void draw_noise(NoiseKind kind, std::uint64_t seed, std::size_t env_index, std::uint64_t decision, std::size_t n_noise,
                float* noise) {
  RandomStream stream(seed, static_cast<std::uint32_t>(env_index), RandomPurpose::action, decision * n_noise);
  for (std::size_t k = 0; k < n_noise; ++k) {
    noise[k] = static_cast<float>(kind == NoiseKind::normal ? stream.normal() : stream.uniform());
  }
}

bool is_finite(const float* numbers, std::size_t n) {
  return std::all_of(numbers, numbers + n, [](float number) { return std::isfinite(number); });
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
        n_outputs_(policy.n_outputs()),
        rooms_(n, Room(engine.task())),
        n_unstable_(settings.n_unstable_in_a_row + first, settings.n_unstable_in_a_row + first + n),
        noise_(n * policy.n_noise()),
        obs_(settings.n_steps * n * n_obs_),
        outputs_(settings.n_steps * n * n_outputs_),
        actions_(settings.n_steps * n * n_actions_),
        actor_(policy.make_actor(n, is_alone() ? Products::together : Products::apart)) {}

  std::size_t n_done() const { return n_done_; }

  // The next steps, up to `end`.
  void advance(std::size_t end) {
    for (; n_done_ < end; ++n_done_) {
      const std::size_t step = n_done_;
      decide(step, *actor_);
      const std::size_t n_together = engine_.simulation(first_).n_together();
      for (std::size_t i = 0; i < n_; i += n_together) step_together(step, i, std::min(i + n_together, n_));
    }
  }

  // Whether it holds all environments: then it computes as lock-step does.
  bool is_alone() const { return n_ == engine_.n_envs(); }

  // What is left to do after the last step.
  void finish() {
    const std::size_t n_rows = settings_.n_steps * n_;
    std::vector<float> numbers(n_rows);
    policy_.log_probs(outputs_.data(), actions_.data(), n_rows, numbers.data());
    scatter(numbers, out_.log_probs);
    // Alone, a shard has the rows that a step of all environments has, and so lock-step's last bits.
    policy_.values(obs_.data(), n_rows, is_alone() ? n_ : kValueRows, numbers.data());
    scatter(numbers, out_.values);
  }

  EpisodeEnds ends;

 private:
  // What an environment needs while it takes a step.
  struct Room {
    explicit Room(const Task& task) : terminal_obs(task.n_obs()), reset_info(task.n_reset_info()), controls(task.n_actions()) {}
    std::vector<double> terminal_obs, reset_info;
    std::vector<float> controls;  // [n_controls]
    double reward = 0.0, episode_return = 0.0;
    std::int32_t n_held = 1;
    std::int64_t episode_length = 0;
    std::uint8_t is_unstable = 0;
  };

  std::size_t at(std::size_t step, std::size_t env_index) const { return step * engine_.n_envs() + env_index; }

  // From [T, n] to the shard's part of [T, E].
  void scatter(const std::vector<float>& numbers, float* out) const {
    for (std::size_t step = 0; step < settings_.n_steps; ++step) {
      std::copy_n(numbers.data() + step * n_, n_, out + at(step, first_));
    }
  }

  void decide(std::size_t step, Actor& actor) {
    // The shard's rows lie one behind the other.
    const double* obs = out_.observations + at(step, first_) * n_obs_;
    float* kept_obs = obs_.data() + step * n_ * n_obs_;
    std::transform(obs, obs + n_ * n_obs_, kept_obs, [](double number) { return static_cast<float>(number); });
    std::copy_n(kept_obs, n_ * n_obs_, actor.obs());
    renew_noise(step);
    float* actions = actions_.data() + step * n_ * n_actions_;
    const float* outputs = actor.act(noise_.data(), actions);
    std::copy_n(outputs, n_ * n_outputs_, outputs_.data() + step * n_ * n_outputs_);
    std::copy_n(actions, n_ * n_actions_, out_.actions + at(step, first_) * n_actions_);
  }

  void renew_noise(std::size_t step) {
    const std::size_t freq = settings_.noise_sample_freq, n_noise = policy_.n_noise();
    if (policy_.keeps_noise() && step > 0 && (freq == 0 || step % freq != 0)) return;
    if (settings_.noise != nullptr) {
      std::copy_n(settings_.noise + at(step, first_) * n_noise, n_ * n_noise, noise_.data());
      return;
    }
    for (std::size_t i = 0; i < n_; ++i) {
      draw_noise(policy_.noise_kind(), settings_.noise_seed, first_ + i, settings_.first_decision + step, n_noise,
                 noise_.data() + i * n_noise);
    }
  }

  void take_controls(std::size_t step, std::size_t i) {
    const float* outputs = outputs_.data() + (step * n_ + i) * n_outputs_;
    const float* action = actions_.data() + (step * n_ + i) * n_actions_;
    if (!is_finite(outputs, n_outputs_) || !is_finite(action, n_actions_)) {
      throw NativeError("the policy gave numbers that are not finite");
    }
    std::vector<float>& controls = rooms_[i].controls;
    const std::size_t n = controls.size();
    const float* low = settings_.controls.rows;
    const float* high = low + n;
    if (settings_.controls.n_choices > 0) {
      std::copy_n(low + static_cast<std::size_t>(action[0]) * n, n, controls.data());
      return;
    }
    for (std::size_t k = 0; k < n; ++k) {
      controls[k] = policy_.is_squashed() ? low[k] + 0.5f * (action[k] + 1.0f) * (high[k] - low[k])
                                          : std::min(std::max(action[k], low[k]), high[k]);
    }
  }

  // One step of the environments [begin, end) of the shard, which ask their low level together at every substep.
  void step_together(std::size_t step, std::size_t begin, std::size_t end) {
    under_way_.clear();
    for (std::size_t i = begin; i < end; ++i) {
      named(step, i, [&] { begin_step(step, i); });
      under_way_.push_back(i);
    }
    while (!under_way_.empty()) {
      questions_.clear();
      for (const std::size_t i : under_way_) {
        named(step, i, [&] {
          if (const Question* question = simulation(i).begin_substep()) questions_.push_back(*question);
        });
      }
      if (!questions_.empty()) {
        named(step, under_way_.front(), [&] { questions_.front().low_level->activate(questions_.data(), questions_.size()); });
      }
      std::size_t n_left = 0;
      for (const std::size_t i : under_way_) {
        named(step, i, [&] {
          if (simulation(i).end_substep()) {
            end_step(step, i);
          } else {
            under_way_[n_left++] = i;
          }
        });
      }
      under_way_.resize(n_left);
    }
  }

  Simulation& simulation(std::size_t i) { return engine_.simulation(first_ + i); }

  // Errors name environment and step.
  template <typename Call>
  void named(std::size_t step, std::size_t i, const Call& call) {
    try {
      call();
    } catch (const std::exception& error) {
      throw NativeError("environment " + std::to_string(first_ + i) + ", step " +
                        std::to_string(simulation(i).n_episode_steps()) + " of its episode, step " + std::to_string(step) +
                        " of the rollout: " + error.what());
    }
  }

  double* next_obs(std::size_t step, std::size_t i) const {
    return step + 1 < settings_.n_steps ? out_.observations + at(step + 1, first_ + i) * n_obs_
                                        : out_.last_observations + (first_ + i) * n_obs_;
  }

  double* raw_obs(std::size_t step, std::size_t i) const {
    return settings_.normalization != nullptr ? out_.raw_observations + at(step, first_ + i) * n_obs_ : next_obs(step, i);
  }

  void begin_step(std::size_t step, std::size_t i) {
    take_controls(step, i);
    const std::size_t here = at(step, first_ + i);
    Room& room = rooms_[i];
    const StepRow row{raw_obs(step, i),
                      &room.reward,
                      out_.terminated + here,
                      out_.truncated + here,
                      out_.infos + here * engine_.task().n_info(),
                      room.terminal_obs.data(),
                      &room.n_held,
                      &room.episode_return,
                      &room.episode_length,
                      room.reset_info.data(),
                      &room.is_unstable,
                      out_.samples != nullptr ? out_.samples + here * engine_.task().n_sample() : nullptr};
    simulation(i).begin_decision(room.controls.data(), settings_.n_hold != nullptr ? settings_.n_hold[here] : 0,
                                 settings_.gamma, row);
  }

  void end_step(std::size_t step, std::size_t i) {
    const std::size_t here = at(step, first_ + i);
    const Room& room = rooms_[i];
    out_.rewards[here] = static_cast<float>(room.reward);
    out_.n_held[here] = room.n_held;
    if (settings_.normalization != nullptr) normalize(raw_obs(step, i), next_obs(step, i));
    if (!out_.terminated[here] && !out_.truncated[here]) return;
    const Instability& instability = simulation(i).instability();
    ends.ends.push_back({step, first_ + i, room.episode_return, room.episode_length, room.is_unstable != 0, instability.seed,
                         instability.n_total_steps});
    ends.terminal_obs.insert(ends.terminal_obs.end(), room.terminal_obs.begin(), room.terminal_obs.end());
    ends.reset_infos.insert(ends.reset_infos.end(), room.reset_info.begin(), room.reset_info.end());
    n_unstable_[i] = room.is_unstable != 0 ? n_unstable_[i] + 1 : 0;
    if (n_unstable_[i] >= settings_.max_unstable_in_a_row) {
      throw NativeError("seed " + std::to_string(instability.seed) + ", step " + std::to_string(instability.n_total_steps) +
                        ": the simulation broke down in " + std::to_string(n_unstable_[i]) + " episodes in a row");
    }
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
  const std::size_t first_, n_, n_obs_, n_actions_, n_outputs_;
  std::vector<Room> rooms_;               // [n]
  std::vector<Question> questions_;       // of those that ask at this substep
  std::vector<std::size_t> under_way_;    // those whose step is not over
  std::vector<std::int64_t> n_unstable_;  // [n], in a row
  std::vector<float> noise_;              // [n, n_noise]
  std::vector<float> obs_;                // [T, n, n_obs], as the policy takes them
  std::vector<float> outputs_;            // [T, n, n_outputs]
  std::vector<float> actions_;            // [T, n, n_actions]
  const std::unique_ptr<Actor> actor_;
  std::size_t n_done_ = 0;
};

// Steps of a shard between two looks at the others.
constexpr std::size_t kPieceSteps = 16;
// Shards under way at a time, for each thread.
constexpr std::size_t kOpenShards = 4;

// Whose turn it is. A thread takes the shard that is furthest behind, among the first that are not finished, through the next
// piece of the rollout: so they come to the end together, and no thread waits for another's last shard. Which thread takes
// which piece changes no result.
class Course {
 public:
  Course(std::size_t n_shards, std::size_t n_steps, int n_threads, const std::function<std::unique_ptr<Shard>(std::size_t)>& make)
      : ends(n_shards),
        n_steps_(n_steps),
        n_open_(kOpenShards * static_cast<std::size_t>(n_threads)),
        make_(make),
        entries_(n_shards) {}

  // Work until no shard is left to take.
  void work() {
    for (std::size_t index = take(); index < entries_.size(); index = take()) {
      bool is_finished = true;
      std::exception_ptr error;
      try {
        is_finished = advance(index);
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard<std::mutex> lock(mutex_);
      entries_[index].is_running = false;
      entries_[index].is_finished = is_finished;
      entries_[index].error = error;
      if (is_finished) entries_[index].shard.reset();
    }
  }

  void throw_first_error() const {
    for (const Entry& entry : entries_) {
      if (entry.error) std::rethrow_exception(entry.error);
    }
  }

  std::vector<EpisodeEnds> ends;  // [n_shards]

 private:
  struct Entry {
    bool is_running = false;
    bool is_finished = false;
    std::exception_ptr error;
    std::size_t n_done = 0;
    std::unique_ptr<Shard> shard;  // while under way; only the thread that runs it looks at it
  };

  // A shard for this thread, or the number of shards if there is none.
  std::size_t take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::size_t best = entries_.size(), n_open = 0;
    while (first_ < entries_.size() && entries_[first_].is_finished) ++first_;
    for (std::size_t i = first_; i < entries_.size() && n_open < n_open_; ++i) {
      if (entries_[i].is_finished) continue;
      ++n_open;
      if (!entries_[i].is_running && (best == entries_.size() || entries_[i].n_done < entries_[best].n_done)) best = i;
    }
    if (best < entries_.size()) {
      entries_[best].is_running = true;
      entries_[best].n_done += kPieceSteps;
    }
    return best;
  }

  // Returns whether the shard is at its end.
  bool advance(std::size_t index) {
    std::unique_ptr<Shard>& shard = entries_[index].shard;
    if (!shard) shard = make_(index);
    shard->advance(std::min(shard->n_done() + kPieceSteps, n_steps_));
    if (shard->n_done() < n_steps_) return false;
    shard->finish();
    ends[index] = std::move(shard->ends);
    return true;
  }

  const std::size_t n_steps_, n_open_;
  const std::function<std::unique_ptr<Shard>(std::size_t)>& make_;
  std::mutex mutex_;           // guards what follows
  std::size_t first_ = 0;      // all before it are finished
  std::vector<Entry> entries_;
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

void action_noise(NoiseKind kind, std::uint64_t seed, std::uint64_t first_decision, std::size_t n_steps, std::size_t n_envs,
                  std::size_t n_noise, float* noise) {
  for (std::size_t step = 0; step < n_steps; ++step) {
    for (std::size_t env_index = 0; env_index < n_envs; ++env_index) {
      draw_noise(kind, seed, env_index, first_decision + step, n_noise, noise + (step * n_envs + env_index) * n_noise);
    }
  }
}

EpisodeEnds collect_rollout(Engine& engine, Policy& policy, const RolloutSettings& settings, const RolloutArrays& out,
                            const std::function<void(const std::function<void()>&)>& in_worker) {
  const std::size_t n_envs = engine.n_envs(), size = settings.shard_size, n_choices = settings.controls.n_choices;
  const std::size_t n_wanted = n_choices > 0 ? n_choices : engine.task().n_actions();
  const std::size_t n_given = n_choices > 0 ? policy.n_choices() : policy.n_actions();
  if (policy.n_obs() != engine.task().n_obs() || n_given != n_wanted || (policy.n_choices() > 0) != (n_choices > 0)) {
    throw std::invalid_argument("the policy is for " + std::to_string(policy.n_obs()) + " observations and " +
                                std::to_string(std::max(policy.n_choices(), policy.n_actions())) +
                                " actions, the task has " + std::to_string(engine.task().n_obs()) + " and " +
                                std::to_string(n_wanted));
  }
  if (size < 1) throw std::invalid_argument("shard_size must be one or more");
  const std::size_t n_shards = (n_envs + size - 1) / size;
  if (n_shards > 1) policy.take_weights();
  const std::function<std::unique_ptr<Shard>(std::size_t)> make = [&](std::size_t index) {
    return std::make_unique<Shard>(engine, policy, settings, out, index * size, std::min(size, n_envs - index * size));
  };
  Course course(n_shards, settings.n_steps, engine.n_threads(), make);
  engine.run_in_workers(static_cast<std::size_t>(engine.n_threads()), [&](std::size_t) {
    in_worker([&] { course.work(); });
  });
  course.throw_first_error();
  return merge(course.ends, policy.n_obs(), engine.task().n_reset_info());
}

}  // namespace sb3_hrl
