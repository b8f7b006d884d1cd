#pragma once

#include <cstddef>
#include <vector>

namespace sb3_hrl {

// The widest vector registers of this processor that the kernel has a copy for.
int widest_vector_bits();

// A linear layer, y[j] = bias[j] + sum over k of x[k] * weight[k][j], for a few rows at a time.
//
// Each sum runs over the inputs in order, in float32 and without fused multiply-add; only different outputs share a vector
// register. So the bits of a row depend neither on the processor's vector width nor on the other rows.
class DenseLayer {
 public:
  // `vector_bits`: no more than the processor has. Throws std::invalid_argument for a width that there is no kernel of.
  DenseLayer(std::size_t n_in, std::size_t n_out, int vector_bits = widest_vector_bits());

  std::size_t n_in() const { return n_in_; }
  std::size_t n_out() const { return n_out_; }

  // Copy the parameters. weight[k * in_stride + j * out_stride] goes from input k to output j.
  void set(const float* weight, std::size_t in_stride, std::size_t out_stride, const float* bias);

  // So many rows share a pass over the weights.
  static constexpr std::size_t kRows = 4;

  // From x[r] [n_in] to y[r] [n_out] for every row. What is below zero is multiplied by `slope`: LeakyReLU, or nothing with 1.
  // Thread-safe.
  void apply(const float* const* x, float* const* y, std::size_t n_rows, float slope) const;

  // The same for a number of rows that the kernel is made for; `n_out` need not be a multiple of anything.
  using Kernel = void (*)(const float* const* x, std::size_t n_in, const float* weight, const float* bias, std::size_t n_out,
                          float slope, float* const* y);

 private:
  // Sixteen numbers in one line of the cache: what straddles two lines is loaded twice.
  struct alignas(64) Line {
    float numbers[16];
  };

  std::size_t n_in_, n_out_;
  Kernel one_, several_;     // rows: one, kRows
  std::vector<Line> weight_;  // block by block of outputs, [n_in, width of the block]
  std::vector<float> bias_;   // [n_out], zeros up to the last block's end
};

}  // namespace sb3_hrl
