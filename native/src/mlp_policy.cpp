#include "sb3_hrl/mlp_policy.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <utility>

namespace sb3_hrl {
namespace {

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

std::int64_t size(std::size_t n) { return static_cast<std::int64_t>(n); }

// Aligned as torch's own tensors are: the last bit of a matrix product depends on it.
at::Tensor copy_of(const float* numbers, at::IntArrayRef shape) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  std::copy_n(numbers, tensor.numel(), tensor.data_ptr<float>());
  return tensor;
}

struct Layer {
  at::Tensor transposed_weight;  // a view, as in torch's linear
  at::Tensor bias;
  Activation activation;
};

}  // namespace

struct MlpPolicy::Network {
  std::vector<Layer> layers;
  at::Tensor scales;      // [n_actions]
  at::Tensor log_scales;  // [n_actions]
};

class MlpPolicy::MlpActor : public Actor {
 public:
  MlpActor(const Network& network, std::size_t n_rows)
      : network_(network), obs_(at::zeros({size(n_rows), network.layers.front().transposed_weight.size(0)}, at::kFloat)) {
    for (const Layer& layer : network.layers) {
      outputs_.push_back(at::empty({size(n_rows), layer.transposed_weight.size(1)}, at::kFloat));
    }
  }

  float* obs() override { return obs_.data_ptr<float>(); }

  const float* means() override {
    const c10::InferenceMode guard;
    const at::Tensor* input = &obs_;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      const Layer& layer = network_.layers[i];
      at::addmm_out(outputs_[i], layer.bias, *input, layer.transposed_weight);
      layer.activation(outputs_[i]);
      input = &outputs_[i];
    }
    return input->data_ptr<float>();
  }

 private:
  const Network& network_;
  at::Tensor obs_;
  std::vector<at::Tensor> outputs_;
};

MlpPolicy::MlpPolicy(const std::vector<LayerSpec>& layers, const float* log_std) {
  const c10::InferenceMode guard;
  auto network = std::make_unique<Network>();
  for (const LayerSpec& layer : layers) {
    network->layers.push_back({copy_of(layer.weight, {size(layer.n_out), size(layer.n_in)}).t(),
                               copy_of(layer.bias, {size(layer.n_out)}), make_activation(layer.activation, layer.parameter)});
  }
  network->scales = copy_of(log_std, {size(layers.back().n_out)}).exp();
  network->log_scales = network->scales.log();
  network_ = std::move(network);
}

MlpPolicy::~MlpPolicy() = default;

std::size_t MlpPolicy::n_obs() const {
  return static_cast<std::size_t>(network_->layers.front().transposed_weight.size(0));
}

std::size_t MlpPolicy::n_actions() const { return static_cast<std::size_t>(network_->scales.size(0)); }

const float* MlpPolicy::scales() const { return network_->scales.data_ptr<float>(); }

std::unique_ptr<Actor> MlpPolicy::make_actor(std::size_t n_rows) const {
  const c10::InferenceMode guard;
  return std::make_unique<MlpActor>(*network_, n_rows);
}

void MlpPolicy::log_probs(const float* means, const float* actions, std::size_t n, float* log_probs) const {
  const c10::InferenceMode guard;
  const at::Tensor loc = copy_of(means, {size(n), size(n_actions())});
  const at::Tensor value = copy_of(actions, {size(n), size(n_actions())});
  // torch.distributions.Normal.log_prob, in its order.
  const at::Tensor variance = network_->scales.pow(2);
  const at::Tensor each = -((value - loc).pow(2)) / (2 * variance) - network_->log_scales - std::log(std::sqrt(2 * M_PI));
  const at::Tensor sums = each.sum(1);
  std::copy_n(sums.data_ptr<float>(), n, log_probs);
}

OneTorchThread::OneTorchThread() : n_before_(at::get_num_threads()) {
  if (n_before_ != 1) at::set_num_threads(1);
}

OneTorchThread::~OneTorchThread() { at::set_num_threads(n_before_); }

}  // namespace sb3_hrl
