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
  // [n_rows, n_actions]: the means of the actions for what `obs` holds; valid until the next call.
  virtual const float* output() = 0;
};

// A diagonal Gaussian over actions with one scale for each, and the value function that belongs to it. It does not change while workers use it.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::size_t n_obs() const = 0;
  virtual std::size_t n_actions() const = 0;
  virtual const float* scales() const = 0;  // [n_actions]
  virtual std::unique_ptr<Actor> make_actor(std::size_t n_rows) const = 0;
  // log_probs[i] of actions [n, n_actions] under means [n, n_actions].
  virtual void log_probs(const float* means, const float* actions, std::size_t n, float* log_probs) const = 0;
  // values[i] of obs [n, n_obs].
  virtual void values(const float* obs, std::size_t n, float* values) const = 0;
};

}  // namespace sb3_hrl
