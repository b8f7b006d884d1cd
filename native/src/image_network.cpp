#include "sb3_hrl/image_network.hpp"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "sb3_hrl/errors.hpp"
#include "sb3_hrl/mlp_policy.hpp"
#include "sb3_hrl/thread_pool.hpp"

namespace sb3_hrl {
namespace {

// Images that go through the layers together.
constexpr std::size_t kPortion = 16;

std::int64_t size(std::size_t n) { return static_cast<std::int64_t>(n); }

// One of torch's operators over oneDNN, as torch's own compiler uses them.
class Operator {
 public:
  explicit Operator(const char* name) : handle_(find(name)) {}

  template <typename... Arguments>
  at::Tensor operator()(Arguments&&... arguments) const {
    std::vector<c10::IValue> stack{c10::IValue(std::forward<Arguments>(arguments))...};
    handle_.callBoxed(stack);
    return stack.front().toTensor();
  }

 private:
  static c10::OperatorHandle find(const char* name) {
    const auto handle = c10::Dispatcher::singleton().findSchema({std::string("mkldnn::") + name, ""});
    if (!handle) throw NativeError(std::string("this torch has no operator mkldnn::") + name);
    return *handle;
  }

  c10::OperatorHandle handle_;
};

at::Tensor copy_of(const float* numbers, at::IntArrayRef shape) {
  return at::from_blob(const_cast<float*>(numbers), shape, at::kFloat).clone();
}

using Sizes = std::vector<std::int64_t>;

c10::List<std::optional<at::Scalar>> no_scalars() { return c10::List<std::optional<at::Scalar>>(); }

}  // namespace

struct ImageNetwork::Layers {
  struct Convolution {
    at::Tensor weight, bias;
    Sizes strides;
  };

  Layers(const ImageSize& size_of_image, at::ScalarType type, int n_threads)
      : image(size_of_image), type_of_products(type), pool(n_threads - 1, ThreadPool::Caller::works) {}

  // From pixels [n, height, width, n_channels] to features [n, n_features].
  void run(const std::uint8_t* pixels, std::size_t n, float* features) const;

  const ImageSize image;
  const at::ScalarType type_of_products;
  ThreadPool pool;
  std::size_t used_height = 0, used_width = 0;  // pixels beyond them reach no feature
  std::vector<Convolution> convolutions;
  at::Tensor weight, bias;  // of the layer after them; its inputs with the channels last
  std::size_t n_features = 0;
  const Operator convolve{"_convolution_pointwise"}, connect{"_linear_pointwise"};
};

ImageNetwork::ImageNetwork(const std::vector<ConvolutionSpec>& convolutions, const ConnectionSpec& connection,
                           const ImageSize& image, float white, bool halves, int n_threads)
    : layers_(std::make_unique<Layers>(image, halves ? at::kBFloat16 : at::kFloat, n_threads)) {
  const c10::InferenceMode no_gradients;
  const OneTorchThread one;
  const Operator reorder_convolution("_reorder_convolution_weight"), reorder_connection("_reorder_linear_weight");
  std::vector<std::pair<std::size_t, std::size_t>> sizes{{image.height, image.width}};
  std::size_t n_channels = image.n_channels;
  for (const ConvolutionSpec& spec : convolutions) {
    const auto [height, width] = sizes.back();
    if (spec.n_in != n_channels || spec.height > height || spec.width > width) {
      throw std::invalid_argument("the convolutions do not fit together");
    }
    sizes.emplace_back((height - spec.height) / spec.row_stride + 1, (width - spec.width) / spec.column_stride + 1);
    n_channels = spec.n_out;
  }
  const auto [last_height, last_width] = sizes.back();
  if (convolutions.empty() || connection.n_in != n_channels * last_height * last_width) {
    throw std::invalid_argument("the last layer does not fit to the convolutions");
  }
  layers_->used_height = last_height, layers_->used_width = last_width;
  for (auto spec = convolutions.rbegin(); spec != convolutions.rend(); ++spec) {
    layers_->used_height = (layers_->used_height - 1) * spec->row_stride + spec->height;
    layers_->used_width = (layers_->used_width - 1) * spec->column_stride + spec->width;
  }
  for (const ConvolutionSpec& spec : convolutions) {
    at::Tensor weight = copy_of(spec.weight, {size(spec.n_out), size(spec.n_in), size(spec.height), size(spec.width)});
    const bool is_first = layers_->convolutions.empty();
    if (is_first) weight /= white;
    const auto [height, width] = is_first ? std::make_pair(layers_->used_height, layers_->used_width)
                                          : sizes[layers_->convolutions.size()];
    const Sizes strides{size(spec.row_stride), size(spec.column_stride)};
    const Sizes input{size(kPortion), size(spec.n_in), size(height), size(width)};
    const at::Tensor typed = weight.to(layers_->type_of_products);
    layers_->convolutions.push_back({reorder_convolution(typed, Sizes{0, 0}, strides, Sizes{1, 1}, 1, input),
                                     copy_of(spec.bias, {size(spec.n_out)}).to(layers_->type_of_products), strides});
  }
  const Sizes flattened{size(connection.n_out), size(n_channels), size(last_height), size(last_width)};
  const at::Tensor weight = copy_of(connection.weight, flattened).permute({0, 2, 3, 1}).reshape({size(connection.n_out), -1});
  layers_->weight = reorder_connection(weight.to(layers_->type_of_products), size(kPortion));
  layers_->bias = copy_of(connection.bias, {size(connection.n_out)}).to(layers_->type_of_products);
  layers_->n_features = connection.n_out;
}

ImageNetwork::~ImageNetwork() = default;

const ImageSize& ImageNetwork::image() const { return layers_->image; }

std::size_t ImageNetwork::n_features() const { return layers_->n_features; }

void ImageNetwork::run(const std::uint8_t* pixels, std::size_t n, float* features) {
  const std::size_t n_bytes = image().height * image().width * image().n_channels;
  const OneTorchThread one;
  layers_->pool.run((n + kPortion - 1) / kPortion, [&](std::size_t index) {
    const std::size_t begin = index * kPortion;
    layers_->run(pixels + begin * n_bytes, std::min(kPortion, n - begin), features + begin * n_features());
  });
}

void ImageNetwork::Layers::run(const std::uint8_t* pixels, std::size_t n, float* features) const {
  const c10::InferenceMode no_gradients;
  const OneTorchThread one;
  const std::string relu = "relu";
  const Sizes image_sizes{size(n), size(image.height), size(image.width), size(image.n_channels)};
  const at::Tensor bytes = at::from_blob(const_cast<std::uint8_t*>(pixels), image_sizes, at::kByte);
  const at::Tensor used = bytes.narrow(1, 0, size(used_height)).narrow(2, 0, size(used_width));
  at::Tensor x = used.to(type_of_products).permute({0, 3, 1, 2});
  for (const Convolution& layer : convolutions) {
    x = convolve(x, layer.weight, std::optional(layer.bias), Sizes{0, 0}, layer.strides, Sizes{1, 1}, 1, relu, no_scalars(),
                 std::optional<std::string>());
  }
  const at::Tensor flat = x.permute({0, 2, 3, 1}).reshape({size(n), -1});
  const at::Tensor rows = connect(flat, weight, std::optional(bias), relu, no_scalars(), std::optional<std::string>());
  at::from_blob(features, {size(n), size(n_features)}, at::kFloat).copy_(rows);
}

}  // namespace sb3_hrl
