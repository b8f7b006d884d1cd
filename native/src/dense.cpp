#include "sb3_hrl/dense.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace sb3_hrl {
namespace {

// Weights lie in blocks of so many outputs, and of a few where fewer are left.
constexpr std::size_t kWide = 64, kNarrow = 16;

std::size_t padded(std::size_t n) { return (n + kNarrow - 1) / kNarrow * kNarrow; }

// One register of each vector width.
typedef float Lanes4 __attribute__((vector_size(16)));
typedef float Lanes8 __attribute__((vector_size(32)));
typedef float Lanes16 __attribute__((vector_size(64)));

// Sums of R rows that stay in registers while the inputs go by; `stride` is the width of the block that they are part of, `at`
// where they are in the output.
template <typename Lanes, std::size_t N, std::size_t R>
inline __attribute__((always_inline)) void add_up(const float* const* x, std::size_t n_in, const float* weight,
                                                  std::size_t stride, const float* bias, float slope, float* const* y,
                                                  std::size_t at) {
  constexpr std::size_t n_lanes = sizeof(Lanes) / sizeof(float);
  Lanes sums[R][N];
  for (auto& row : sums) std::memcpy(row, bias, sizeof(row));
  for (std::size_t k = 0; k < n_in; ++k, weight += stride) {
    for (std::size_t i = 0; i < N; ++i) {
      Lanes column;
      std::memcpy(&column, weight + i * n_lanes, sizeof(column));
      for (std::size_t r = 0; r < R; ++r) sums[r][i] += x[r][k] * column;
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    if (slope != 1.0f) {
      for (Lanes& sum : sums[r]) sum = sum > 0.0f ? sum : slope * sum;
    }
    std::memcpy(y[r] + at, sums[r], sizeof(sums[r]));
  }
}

// N registers at once for each of R rows: enough to hide the latency of an addition, and no more than there are.
template <typename Lanes, std::size_t N, std::size_t R>
inline __attribute__((always_inline)) void multiply(const float* const* x, std::size_t n_in, const float* weight,
                                                    const float* bias, std::size_t n_out, float slope, float* const* y) {
  constexpr std::size_t n_lanes = sizeof(Lanes) / sizeof(float), n_narrow = kNarrow / n_lanes;
  std::size_t done = 0;
  for (; done + kWide <= n_out; done += kWide) {
    for (std::size_t j = 0; j < kWide; j += N * n_lanes) {
      add_up<Lanes, N, R>(x, n_in, weight + done * n_in + j, kWide, bias + done + j, slope, y, done + j);
    }
  }
  for (; done + kNarrow <= n_out; done += kNarrow) {
    add_up<Lanes, n_narrow, R>(x, n_in, weight + done * n_in, kNarrow, bias + done, slope, y, done);
  }
  if (done == n_out) return;
  float rest[R][kNarrow];
  float* rows[R];
  for (std::size_t r = 0; r < R; ++r) rows[r] = rest[r];
  add_up<Lanes, n_narrow, R>(x, n_in, weight + done * n_in, kNarrow, bias + done, slope, rows, 0);
  for (std::size_t r = 0; r < R; ++r) std::copy_n(rest[r], n_out - done, y[r] + done);
}

template <std::size_t N, std::size_t R>
void multiply_128(const float* const* x, std::size_t n_in, const float* weight, const float* bias, std::size_t n_out,
                  float slope, float* const* y) {
  multiply<Lanes4, N, R>(x, n_in, weight, bias, n_out, slope, y);
}

#ifdef __x86_64__
template <std::size_t N, std::size_t R>
__attribute__((target("avx2"))) void multiply_256(const float* const* x, std::size_t n_in, const float* weight,
                                                  const float* bias, std::size_t n_out, float slope, float* const* y) {
  multiply<Lanes8, N, R>(x, n_in, weight, bias, n_out, slope, y);
}

template <std::size_t N, std::size_t R>
__attribute__((target("avx512f"))) void multiply_512(const float* const* x, std::size_t n_in, const float* weight,
                                                     const float* bias, std::size_t n_out, float slope, float* const* y) {
  multiply<Lanes16, N, R>(x, n_in, weight, bias, n_out, slope, y);
}
#endif

struct Kernels {
  DenseLayer::Kernel one, several;
};

Kernels choose_kernels(int vector_bits) {
  constexpr std::size_t R = DenseLayer::kRows;
#ifdef __x86_64__
  if (vector_bits == 512) return {multiply_512<4, 1>, multiply_512<4, R>};
  if (vector_bits == 256) return {multiply_256<8, 1>, multiply_256<2, R>};
#endif
  if (vector_bits == 128) return {multiply_128<8, 1>, multiply_128<2, R>};
  throw std::invalid_argument("there is no kernel of " + std::to_string(vector_bits) + " bits");
}

}  // namespace

int widest_vector_bits() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return 512;
  if (__builtin_cpu_supports("avx2")) return 256;
#endif
  return 128;
}

DenseLayer::DenseLayer(std::size_t n_in, std::size_t n_out, int vector_bits)
    : n_in_(n_in), n_out_(n_out), weight_(n_in * padded(n_out) / kNarrow), bias_(padded(n_out)) {
  const Kernels kernels = choose_kernels(vector_bits);
  one_ = kernels.one;
  several_ = kernels.several;
}

void DenseLayer::set(const float* weight, std::size_t in_stride, std::size_t out_stride, const float* bias) {
  std::copy_n(bias, n_out_, bias_.data());
  float* block = reinterpret_cast<float*>(weight_.data());
  for (std::size_t done = 0, width; done < bias_.size(); done += width, block += n_in_ * width) {
    width = n_out_ - done >= kWide ? kWide : kNarrow;
    const std::size_t n_real = std::min(width, n_out_ - done);
    for (std::size_t j = 0; j < n_real; ++j) {
      const float* from = weight + (done + j) * out_stride;
      for (std::size_t k = 0; k < n_in_; ++k) block[k * width + j] = from[k * in_stride];
    }
  }
}

void DenseLayer::apply(const float* const* x, float* const* y, std::size_t n_rows, float slope) const {
  const float* weights = reinterpret_cast<const float*>(weight_.data());
  std::size_t row = 0;
  for (; row + kRows <= n_rows; row += kRows) several_(x + row, n_in_, weights, bias_.data(), n_out_, slope, y + row);
  for (; row < n_rows; ++row) one_(x + row, n_in_, weights, bias_.data(), n_out_, slope, y + row);
}

}  // namespace sb3_hrl
