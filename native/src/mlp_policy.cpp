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

// Rows of one forward pass of the value function: enough for the matrix products, and still in the cache.
constexpr std::size_t kValueRows = 512;

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

std::vector<Layer> make_layers(const std::vector<LayerSpec>& specs) {
  std::vector<Layer> layers;
  for (const LayerSpec& spec : specs) {
    layers.push_back({copy_of(spec.weight, {size(spec.n_out), size(spec.n_in)}).t(), copy_of(spec.bias, {size(spec.n_out)}),
                      make_activation(spec.activation, spec.parameter)});
  }
  return layers;
}

// A network with room for a batch of rows.
class Forward : public Actor {
 public:
  Forward(const std::vector<Layer>& layers, std::size_t n_rows)
      : layers_(layers), input_(at::zeros({size(n_rows), layers.front().transposed_weight.size(0)}, at::kFloat)) {
    for (const Layer& layer : layers) {
      outputs_.push_back(at::empty({size(n_rows), layer.transposed_weight.size(1)}, at::kFloat));
    }
  }

  float* obs() override { return input_.data_ptr<float>(); }

  const float* output() override {
    const c10::InferenceMode guard;
    const at::Tensor* input = &input_;
    for (std::size_t i = 0; i < outputs_.size(); ++i) {
      at::addmm_out(outputs_[i], layers_[i].bias, *input, layers_[i].transposed_weight);
      layers_[i].activation(outputs_[i]);
      input = &outputs_[i];
    }
    return input->data_ptr<float>();
  }

 private:
  const std::vector<Layer>& layers_;
  at::Tensor input_;
  std::vector<at::Tensor> outputs_;
};

}  // namespace

struct MlpPolicy::Networks {
  std::vector<Layer> actor, critic;
  at::Tensor scales;      // [n_actions]
  at::Tensor log_scales;  // [n_actions]
};

MlpPolicy::MlpPolicy(const std::vector<LayerSpec>& actor, const std::vector<LayerSpec>& critic, const float* log_std) {
  const c10::InferenceMode guard;
  auto networks = std::make_unique<Networks>();
  networks->actor = make_layers(actor);
  networks->critic = make_layers(critic);
  networks->scales = copy_of(log_std, {size(actor.back().n_out)}).exp();
  networks->log_scales = networks->scales.log();
  networks_ = std::move(networks);
}

MlpPolicy::~MlpPolicy() = default;

std::size_t MlpPolicy::n_obs() const {
  return static_cast<std::size_t>(networks_->actor.front().transposed_weight.size(0));
}

std::size_t MlpPolicy::n_actions() const { return static_cast<std::size_t>(networks_->scales.size(0)); }

const float* MlpPolicy::scales() const { return networks_->scales.data_ptr<float>(); }

std::unique_ptr<Actor> MlpPolicy::make_actor(std::size_t n_rows) const {
  const c10::InferenceMode guard;
  return std::make_unique<Forward>(networks_->actor, n_rows);
}

void MlpPolicy::log_probs(const float* means, const float* actions, std::size_t n, float* log_probs) const {
  const c10::InferenceMode guard;
  const at::Tensor loc = copy_of(means, {size(n), size(n_actions())});
  const at::Tensor value = copy_of(actions, {size(n), size(n_actions())});
  // torch.distributions.Normal.log_prob, in its order.
  const at::Tensor variance = networks_->scales.pow(2);
  const at::Tensor each = -((value - loc).pow(2)) / (2 * variance) - networks_->log_scales - std::log(std::sqrt(2 * M_PI));
  const at::Tensor sums = each.sum(1);
  std::copy_n(sums.data_ptr<float>(), n, log_probs);
}

void MlpPolicy::values(const float* obs, std::size_t n, float* values) const {
  const c10::InferenceMode guard;
  for (std::size_t done = 0; done < n; done += kValueRows) {
    const std::size_t n_rows = std::min(kValueRows, n - done);
    Forward forward(networks_->critic, n_rows);
    std::copy_n(obs + done * n_obs(), n_rows * n_obs(), forward.obs());
    std::copy_n(forward.output(), n_rows, values + done);
  }
}

OneTorchThread::OneTorchThread() : n_before_(at::get_num_threads()) {
  if (n_before_ != 1) at::set_num_threads(1);
}

OneTorchThread::~OneTorchThread() { at::set_num_threads(n_before_); }

}  // namespace sb3_hrl
