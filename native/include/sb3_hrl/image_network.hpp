#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace sb3_hrl {

// A convolution without padding, then ReLU. The memory is the caller's; it is copied.
struct ConvolutionSpec {
  const float* weight;  // [n_out, n_in, height, width]
  const float* bias;    // [n_out]
  std::size_t n_in;
  std::size_t n_out;
  std::size_t height;
  std::size_t width;
  std::size_t row_stride;
  std::size_t column_stride;
};

// The layer after them, then ReLU. Its inputs lie as torch flattens images: channels first.
struct ConnectionSpec {
  const float* weight;  // [n_out, n_in]
  const float* bias;    // [n_out]
  std::size_t n_in;
  std::size_t n_out;
};

// Images of bytes, with the channels last.
struct ImageSize {
  std::size_t height;
  std::size_t width;
  std::size_t n_channels;
};

// Features of images for somebody who acts and learns nothing: SB3's Nature-CNN and what is built like it. The weights are put
// into oneDNN's own order once, not in every layer of every call, and threads take a few images each through all layers, so that
// they wait for each other once. The number of threads changes no bit.
class ImageNetwork {
 public:
  // Pixels are divided by `white`. With `halves` the products are of numbers of 16 bits (bfloat16). Throws
  // std::invalid_argument if the layers do not fit together, NativeError if this torch has no oneDNN.
  ImageNetwork(const std::vector<ConvolutionSpec>& convolutions, const ConnectionSpec& connection, const ImageSize& image,
               float white, bool halves, int n_threads);
  ~ImageNetwork();

  const ImageSize& image() const;
  std::size_t n_features() const;

  // Of n images, whose rows are `image().width * image().n_channels` bytes, to n rows of features. From one thread at a time.
  void run(const std::uint8_t* pixels, std::size_t n, float* features);

 private:
  struct Layers;
  std::unique_ptr<Layers> layers_;
};

}  // namespace sb3_hrl
