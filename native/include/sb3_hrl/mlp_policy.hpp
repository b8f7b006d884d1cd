#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "sb3_hrl/policy.hpp"

namespace sb3_hrl {

// One layer of a network: y = activation(weight x + bias). The memory is the caller's and has to outlive the policy, which
// sees what is written there between rollouts. It should be aligned as torch's own tensors are, since the last bit of a matrix
// product depends on it.
struct LayerSpec {
  const float* weight;  // [n_out, n_in]
  const float* bias;    // [n_out]
  std::size_t n_in;
  std::size_t n_out;
  std::string activation;  // a class of torch.nn, in lower case
  double parameter;        // negative_slope or alpha; 1 for GELU's tanh approximation
};

// SB3's DiagGaussianDistribution, StateDependentNoiseDistribution without and with `squash_output`, CategoricalDistribution.
enum class Distribution { gaussian, state_dependent, squashed_state_dependent, categorical };

// SB3's MlpPolicy, by the same ATen kernels in the same order, so that it gives the same bits; but for the products of an actor
// that multiplies `apart`.
class MlpPolicy : public Policy {
 public:
  // Throws std::invalid_argument for an unknown activation. `scales` are standard deviations: [n_out of the actor's last
  // layer], or [its n_in, its n_out] of the noise matrix if they depend on the state; not read for a choice.
  MlpPolicy(const std::vector<LayerSpec>& actor, const std::vector<LayerSpec>& critic, Distribution distribution,
            const float* scales);
  ~MlpPolicy() override;

  // Other standard deviations, as many as before; copied.
  void set_scales(const float* scales);

  std::size_t n_obs() const override;
  std::size_t n_actions() const override;
  std::size_t n_choices() const override;
  std::size_t n_outputs() const override;
  std::size_t n_noise() const override;
  NoiseKind noise_kind() const override;
  bool keeps_noise() const override;
  bool is_squashed() const override;
  void take_weights() override;
  std::unique_ptr<Actor> make_actor(std::size_t n_rows, Products products) const override;
  void log_probs(const float* outputs, const float* actions, std::size_t n, float* log_probs) const override;
  void values(const float* obs, std::size_t n, std::size_t n_rows, float* values) const override;

  // ActorCriticPolicy.forward for Gaussian actions: from obs [n, n_obs] and noise [n, n_noise] to actions [n, n_actions], values
  // [n] and log_probs [n].
  void forward(const float* obs, const float* noise, std::size_t n, float* actions, float* values, float* log_probs) const;

 private:
  std::size_t n_out() const;
  bool is_choice() const;

  struct Networks;
  std::unique_ptr<Networks> networks_;
};

// While it lives, ATen works in this thread without threads of its own; afterwards this thread has as many as before. ATen
// keeps the number per thread, but threads that are made later take over the last one that was set anywhere: so the thread
// that waits for the workers needs a guard, too.
class OneTorchThread {
 public:
  OneTorchThread();
  ~OneTorchThread();
  OneTorchThread(const OneTorchThread&) = delete;
  OneTorchThread& operator=(const OneTorchThread&) = delete;

 private:
  int n_before_;
};

}  // namespace sb3_hrl
