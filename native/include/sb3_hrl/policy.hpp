#pragma once

#include <cstddef>
#include <memory>

namespace sb3_hrl {

// A policy at work in one thread: a batch of rows of its own.
class Actor {
 public:
  virtual ~Actor() = default;
  // [n_rows, n_obs], for the caller to fill.
  virtual float* obs() = 0;
  // Decide for what `obs` holds: from noise [n_rows, n_noise] to actions [n_rows, n_actions]. Returns the distributions that
  // they come from [n_rows, n_outputs], valid until the next call.
  virtual const float* act(const float* noise, float* actions) = 0;
};

// What the random numbers of a policy are like.
enum class NoiseKind { normal, uniform };

// How an actor multiplies. `together`: a product of all rows, whose last bits depend on their number, as in lock-step.
// `apart`: sums in order, so that the bits of a row do not depend on the others; faster for a few rows.
enum class Products { together, apart };

// A distribution over actions for every observation, and the value function that belongs to it. It does not change while
// workers use it.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::size_t n_obs() const = 0;
  virtual std::size_t n_actions() const = 0;  // numbers of an action; one for a choice among n_choices
  virtual std::size_t n_choices() const = 0;  // zero if actions are not a choice
  virtual std::size_t n_outputs() const = 0;  // numbers that describe a distribution
  virtual std::size_t n_noise() const = 0;    // random numbers of a decision
  virtual NoiseKind noise_kind() const = 0;
  virtual bool keeps_noise() const = 0;   // whether one draw may serve several decisions
  virtual bool is_squashed() const = 0;   // whether actions lie in [-1, 1], which stands for the range of the controls
  // Once before each rollout whose actors multiply `apart`: take over the weights as they are now.
  virtual void take_weights() = 0;
  virtual std::unique_ptr<Actor> make_actor(std::size_t n_rows, Products products) const = 0;
  // log_probs[i] of actions [n, n_actions] under the distributions outputs [n, n_outputs].
  virtual void log_probs(const float* outputs, const float* actions, std::size_t n, float* log_probs) const = 0;
  // values[i] of obs [n, n_obs], computed n_rows at a time: the last bits depend on it.
  virtual void values(const float* obs, std::size_t n, std::size_t n_rows, float* values) const = 0;
};

}  // namespace sb3_hrl
