#include "sb3_hrl/mlp_policy.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <stdexcept>
#include <utility>

#include "sb3_hrl/dense.hpp"

namespace sb3_hrl {
namespace {

// SB3's distributions keep a variance, and the argument of a logarithm, above zero with it.
constexpr double kEpsilon = 1e-6;

using Activation = std::function<void(at::Tensor&)>;

Activation make_activation(const std::string& name, double parameter) {
  if (name == "identity") return [](at::Tensor&) {};
  if (name == "tanh") return [](at::Tensor& x) { at::tanh_(x); };
  if (name == "relu") return [](at::Tensor& x) { at::relu_(x); };
  if (name == "silu") return [](at::Tensor& x) { at::silu_(x); };
  if (name == "elu") return [parameter](at::Tensor& x) { at::elu_(x, parameter); };
  if (name == "leakyrelu") return [parameter](at::Tensor& x) { at::leaky_relu_(x, parameter); };
  if (name == "gelu") {
    const char* approximation = parameter != 0.0 ? "tanh" : "none";
    return [approximation](at::Tensor& x) { at::gelu_(x, approximation); };
  }
  throw std::invalid_argument("there is no activation '" + name + "'");
}

bool is_state_dependent(Distribution distribution) {
  return distribution == Distribution::state_dependent || distribution == Distribution::squashed_state_dependent;
}

std::int64_t size(std::size_t n) { return static_cast<std::int64_t>(n); }

// Aligned as torch's own tensors are: the last bit of a matrix product depends on it.
at::Tensor copy_of(const float* numbers, at::IntArrayRef shape) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  std::copy_n(numbers, tensor.numel(), tensor.data_ptr<float>());
  return tensor;
}

// Only read.
at::Tensor view_of(const float* numbers, at::IntArrayRef shape) {
  return at::from_blob(const_cast<float*>(numbers), shape, at::kFloat);
}

struct Layer {
  at::Tensor transposed_weight;  // a view, as in torch's linear
  at::Tensor bias;
  Activation activation;
};

std::vector<Layer> make_layers(const std::vector<LayerSpec>& specs) {
  std::vector<Layer> layers;
  for (const LayerSpec& spec : specs) {
    layers.push_back({view_of(spec.weight, {size(spec.n_out), size(spec.n_in)}).t(), view_of(spec.bias, {size(spec.n_out)}),
                      make_activation(spec.activation, spec.parameter)});
  }
  return layers;
}

// A network with room for a batch of rows. With `dense`, the same layers as kernels of ours, these multiply.
class Forward {
 public:
  Forward(const std::vector<Layer>& layers, std::size_t n_rows, const std::vector<DenseLayer>* dense = nullptr)
      : layers_(layers),
        dense_(dense),
        input_(at::zeros({size(n_rows), layers.front().transposed_weight.size(0)}, at::kFloat)),
        rows_{pointers(input_)} {
    for (const Layer& layer : layers) {
      outputs_.push_back(at::empty({size(n_rows), layer.transposed_weight.size(1)}, at::kFloat));
      rows_.push_back(pointers(outputs_.back()));
    }
  }

  float* obs() { return input_.data_ptr<float>(); }
  // What the last layer gets.
  const at::Tensor& latent() const { return outputs_.size() > 1 ? outputs_[outputs_.size() - 2] : input_; }

  const at::Tensor& run() {
    const at::Tensor* input = &input_;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const Layer& layer = layers_[i];
      if (dense_ != nullptr) {
        (*dense_)[i].apply(rows_[i].data(), rows_[i + 1].data(), rows_[i].size(), 1.0f);
      } else {
        at::addmm_out(outputs_[i], layer.bias, *input, layer.transposed_weight);
      }
      layer.activation(outputs_[i]);
      input = &outputs_[i];
    }
    return outputs_.back();
  }

 private:
  static std::vector<float*> pointers(const at::Tensor& tensor) {
    std::vector<float*> rows;
    for (std::int64_t row = 0; row < tensor.size(0); ++row) rows.push_back(tensor.data_ptr<float>() + row * tensor.size(1));
    return rows;
  }

  const std::vector<Layer>& layers_;
  const std::vector<DenseLayer>* dense_;
  at::Tensor input_;
  std::vector<at::Tensor> outputs_;
  std::vector<std::vector<float*>> rows_;  // of the input and of each layer's output
};

class ForwardActor : public Actor {
 public:
  ForwardActor(const std::vector<Layer>& layers, std::size_t n_rows, const std::vector<DenseLayer>* dense)
      : forward_(layers, n_rows, dense) {}
  float* obs() override { return forward_.obs(); }

 protected:
  Forward forward_;
};

// DiagGaussianDistribution; outputs are the means.
class GaussianActor : public ForwardActor {
 public:
  GaussianActor(const std::vector<Layer>& layers, std::size_t n_rows, const std::vector<DenseLayer>* dense,
                const at::Tensor& scales)
      : ForwardActor(layers, n_rows, dense), scales_(scales) {}

  const float* act(const float* noise, float* actions) override {
    const c10::InferenceMode guard;
    const at::Tensor& outputs = forward_.run();
    const float* means = outputs.data_ptr<float>();
    const float* scales = scales_.data_ptr<float>();
    const std::size_t n = static_cast<std::size_t>(outputs.numel()), n_actions = static_cast<std::size_t>(scales_.numel());
    // torch.distributions.Normal.rsample: loc + eps * scale.
    for (std::size_t i = 0; i < n; ++i) actions[i] = means[i] + noise[i] * scales[i % n_actions];
    return means;
  }

 private:
  const at::Tensor& scales_;
};

// StateDependentNoiseDistribution, where the noise is a matrix for each row; outputs are the means and the scales.
class StateDependentActor : public ForwardActor {
 public:
  StateDependentActor(const std::vector<Layer>& layers, std::size_t n_rows, const std::vector<DenseLayer>* dense,
                      const at::Tensor& scales, bool is_squashed)
      : ForwardActor(layers, n_rows, dense), scales_(scales), is_squashed_(is_squashed) {}

  const float* act(const float* noise, float* actions) override {
    const c10::InferenceMode guard;
    const at::Tensor& means = forward_.run();
    const at::Tensor& latent = forward_.latent();
    const at::Tensor deviations = at::sqrt(at::mm(latent.pow(2), scales_.pow(2)) + kEpsilon);
    const at::Tensor matrices = copy_of(noise, {means.size(0), scales_.size(0), scales_.size(1)}) * scales_;
    at::Tensor chosen = means + at::bmm(latent.unsqueeze(1), matrices).squeeze(1);
    if (is_squashed_) chosen = at::tanh(chosen);
    std::copy_n(chosen.data_ptr<float>(), chosen.numel(), actions);
    outputs_ = at::cat({means, deviations}, 1);
    return outputs_.data_ptr<float>();
  }

 private:
  const at::Tensor& scales_;
  const bool is_squashed_;
  at::Tensor outputs_;
};

// CategoricalDistribution; outputs are the logarithms of the probabilities.
class CategoricalActor : public ForwardActor {
 public:
  using ForwardActor::ForwardActor;

  const float* act(const float* noise, float* actions) override {
    const c10::InferenceMode guard;
    const at::Tensor& logits = forward_.run();
    outputs_ = logits - logits.logsumexp(-1, true);
    const at::Tensor probabilities = at::softmax(outputs_, -1);
    const std::size_t n_choices = static_cast<std::size_t>(logits.size(1));
    for (std::size_t row = 0; row < static_cast<std::size_t>(logits.size(0)); ++row) {
      actions[row] = static_cast<float>(choose(probabilities.data_ptr<float>() + row * n_choices, n_choices, noise[row]));
    }
    return outputs_.data_ptr<float>();
  }

 private:
  // The first choice whose cumulated probability is above a number in [0, 1); rounding may leave none, then the last
  // possible one.
  static std::size_t choose(const float* probabilities, std::size_t n, float number) {
    double sum = 0.0;
    std::size_t last = 0;
    for (std::size_t k = 0; k < n; ++k) {
      sum += static_cast<double>(probabilities[k]);
      if (static_cast<double>(number) < sum) return k;
      if (probabilities[k] > 0.0f) last = k;
    }
    return last;
  }

  at::Tensor outputs_;
};

}  // namespace

struct MlpPolicy::Networks {
  std::vector<Layer> actor, critic;
  std::vector<DenseLayer> dense_actor;  // with the weights that were there at the last `take_weights`
  Distribution distribution;
  at::Tensor scales;  // [n_actions], or [n_latent, n_actions] if they depend on the state; none for a choice
};

MlpPolicy::MlpPolicy(const std::vector<LayerSpec>& actor, const std::vector<LayerSpec>& critic, Distribution distribution,
                     const float* scales) {
  const c10::InferenceMode guard;
  auto networks = std::make_unique<Networks>();
  networks->actor = make_layers(actor);
  for (const LayerSpec& spec : actor) networks->dense_actor.emplace_back(spec.n_in, spec.n_out);
  networks->critic = make_layers(critic);
  networks->distribution = distribution;
  const std::int64_t n_latent = size(actor.back().n_in), n_out = size(actor.back().n_out);
  if (distribution == Distribution::gaussian) networks->scales = copy_of(scales, {n_out});
  if (is_state_dependent(distribution)) networks->scales = copy_of(scales, {n_latent, n_out});
  networks_ = std::move(networks);
}

MlpPolicy::~MlpPolicy() = default;

void MlpPolicy::set_scales(const float* scales) {
  if (!networks_->scales.defined()) return;
  std::copy_n(scales, networks_->scales.numel(), networks_->scales.data_ptr<float>());
}

std::size_t MlpPolicy::n_obs() const {
  return static_cast<std::size_t>(networks_->actor.front().transposed_weight.size(0));
}

std::size_t MlpPolicy::n_out() const {
  return static_cast<std::size_t>(networks_->actor.back().transposed_weight.size(1));
}

bool MlpPolicy::is_choice() const { return networks_->distribution == Distribution::categorical; }

std::size_t MlpPolicy::n_actions() const { return is_choice() ? 1 : n_out(); }

std::size_t MlpPolicy::n_choices() const { return is_choice() ? n_out() : 0; }

std::size_t MlpPolicy::n_outputs() const { return keeps_noise() ? 2 * n_out() : n_out(); }

std::size_t MlpPolicy::n_noise() const { return is_choice() ? 1 : static_cast<std::size_t>(networks_->scales.numel()); }

NoiseKind MlpPolicy::noise_kind() const { return is_choice() ? NoiseKind::uniform : NoiseKind::normal; }

bool MlpPolicy::keeps_noise() const { return is_state_dependent(networks_->distribution); }

bool MlpPolicy::is_squashed() const { return networks_->distribution == Distribution::squashed_state_dependent; }

void MlpPolicy::take_weights() {
  for (std::size_t i = 0; i < networks_->actor.size(); ++i) {
    const Layer& layer = networks_->actor[i];
    DenseLayer& dense = networks_->dense_actor[i];
    dense.set(layer.transposed_weight.data_ptr<float>(), 1, dense.n_in(), layer.bias.data_ptr<float>());
  }
}

std::unique_ptr<Actor> MlpPolicy::make_actor(std::size_t n_rows, Products products) const {
  const c10::InferenceMode guard;
  const std::vector<Layer>& layers = networks_->actor;
  const std::vector<DenseLayer>* dense = products == Products::apart ? &networks_->dense_actor : nullptr;
  if (is_choice()) return std::make_unique<CategoricalActor>(layers, n_rows, dense);
  if (!keeps_noise()) return std::make_unique<GaussianActor>(layers, n_rows, dense, networks_->scales);
  return std::make_unique<StateDependentActor>(layers, n_rows, dense, networks_->scales, is_squashed());
}

void MlpPolicy::log_probs(const float* outputs, const float* actions, std::size_t n, float* log_probs) const {
  const c10::InferenceMode guard;
  if (is_choice()) {
    for (std::size_t i = 0; i < n; ++i) log_probs[i] = outputs[i * n_out() + static_cast<std::size_t>(actions[i])];
    return;
  }
  const at::Tensor described = copy_of(outputs, {size(n), size(n_outputs())});
  const at::Tensor loc = described.narrow(1, 0, size(n_out()));
  const at::Tensor scale = keeps_noise() ? described.narrow(1, size(n_out()), size(n_out())) : networks_->scales;
  at::Tensor value = copy_of(actions, {size(n), size(n_out())});
  if (is_squashed()) {
    // TanhBijector.inverse.
    const float limit = 1.0f - std::numeric_limits<float>::epsilon();
    value = value.clamp(-limit, limit);
    value = 0.5 * (value.log1p() - (-value).log1p());
  }
  // torch.distributions.Normal.log_prob, in its order.
  const at::Tensor each = -((value - loc).pow(2)) / (2 * scale.pow(2)) - scale.log() - std::log(std::sqrt(2 * M_PI));
  at::Tensor sums = each.sum(1);
  if (is_squashed()) sums = sums - at::log(1.0 - at::tanh(value).pow(2) + kEpsilon).sum(1);
  std::copy_n(sums.data_ptr<float>(), n, log_probs);
}

void MlpPolicy::values(const float* obs, std::size_t n, std::size_t n_rows, float* values) const {
  const c10::InferenceMode guard;
  std::optional<Forward> forward;
  for (std::size_t done = 0; done < n; done += n_rows) {
    const std::size_t n_here = std::min(n_rows, n - done);
    if (!forward || n_here != n_rows) forward.emplace(networks_->critic, n_here);
    std::copy_n(obs + done * n_obs(), n_here * n_obs(), forward->obs());
    std::copy_n(forward->run().data_ptr<float>(), n_here, values + done);
  }
}

void MlpPolicy::forward(const float* obs, const float* noise, std::size_t n, float* actions, float* values,
                        float* log_probs) const {
  const std::unique_ptr<Actor> actor = make_actor(n, Products::together);
  std::copy_n(obs, n * n_obs(), actor->obs());
  const float* outputs = actor->act(noise, actions);
  this->log_probs(outputs, actions, n, log_probs);
  this->values(obs, n, n, values);
}

OneTorchThread::OneTorchThread() : n_before_(at::get_num_threads()) {
  if (n_before_ != 1) at::set_num_threads(1);
}

OneTorchThread::~OneTorchThread() { at::set_num_threads(n_before_); }

}  // namespace sb3_hrl
