#include "sb3_hrl/muscle_network.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace sb3_hrl {
namespace {

// Weights lie in blocks of so many outputs, and of a few where fewer are left.
constexpr std::size_t kWide = 64, kNarrow = 16;

constexpr float kSlope = 0.2f;

std::size_t padded(std::size_t n) { return (n + kNarrow - 1) / kNarrow * kNarrow; }

std::size_t block_width(std::size_t n_left) { return n_left >= kWide ? kWide : kNarrow; }

// One register of each vector width.
typedef float Lanes4 __attribute__((vector_size(16)));
typedef float Lanes8 __attribute__((vector_size(32)));
typedef float Lanes16 __attribute__((vector_size(64)));

// Sums of R rows that stay in registers while the inputs go by, and pass through LeakyReLU in a hidden layer; `stride` is the
// width of the block that they are part of, `at` where they are in the output.
template <typename Lanes, std::size_t N, std::size_t R>
inline __attribute__((always_inline)) void add_up(const float* const* x, std::size_t n_in, const float* weight,
                                                  std::size_t stride, const float* bias, bool is_hidden, float* const* y,
                                                  std::size_t at) {
  constexpr std::size_t n_lanes = sizeof(Lanes) / sizeof(float);
  Lanes sums[R][N];
  for (auto& row : sums) std::memcpy(row, bias + at, sizeof(row));
  for (std::size_t k = 0; k < n_in; ++k, weight += stride) {
    for (std::size_t i = 0; i < N; ++i) {
      Lanes column;
      std::memcpy(&column, weight + i * n_lanes, sizeof(column));
      for (std::size_t r = 0; r < R; ++r) sums[r][i] += x[r][k] * column;
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    if (is_hidden) {
      for (Lanes& sum : sums[r]) sum = sum > 0.0f ? sum : kSlope * sum;
    }
    std::memcpy(y[r] + at, sums[r], sizeof(sums[r]));
  }
}

// y = x weight + bias, through LeakyReLU in a hidden layer; `n_out` is a multiple of kNarrow. N registers at once for each of R
// rows: enough to hide the latency of an addition, and no more than there are.
template <typename Lanes, std::size_t N, std::size_t R>
inline __attribute__((always_inline)) void multiply(const float* const* x, std::size_t n_in, const float* weight,
                                                    const float* bias, std::size_t n_out, bool is_hidden, float* const* y) {
  constexpr std::size_t n_lanes = sizeof(Lanes) / sizeof(float);
  std::size_t done = 0;
  for (; done + kWide <= n_out; done += kWide) {
    for (std::size_t j = 0; j < kWide; j += N * n_lanes) {
      add_up<Lanes, N, R>(x, n_in, weight + done * n_in + j, kWide, bias, is_hidden, y, done + j);
    }
  }
  for (; done < n_out; done += kNarrow) {
    add_up<Lanes, kNarrow / n_lanes, R>(x, n_in, weight + done * n_in, kNarrow, bias, is_hidden, y, done);
  }
}

template <std::size_t N, std::size_t R>
void multiply_128(const float* const* x, std::size_t n_in, const float* weight, const float* bias, std::size_t n_out,
                  bool is_hidden, float* const* y) {
  multiply<Lanes4, N, R>(x, n_in, weight, bias, n_out, is_hidden, y);
}

#ifdef __x86_64__
template <std::size_t N, std::size_t R>
__attribute__((target("avx2"))) void multiply_256(const float* const* x, std::size_t n_in, const float* weight,
                                                  const float* bias, std::size_t n_out, bool is_hidden, float* const* y) {
  multiply<Lanes8, N, R>(x, n_in, weight, bias, n_out, is_hidden, y);
}

template <std::size_t N, std::size_t R>
__attribute__((target("avx512f"))) void multiply_512(const float* const* x, std::size_t n_in, const float* weight,
                                                     const float* bias, std::size_t n_out, bool is_hidden, float* const* y) {
  multiply<Lanes16, N, R>(x, n_in, weight, bias, n_out, is_hidden, y);
}
#endif

void check_size(const char* what, std::size_t number, std::size_t expected) {
  if (number == expected) return;
  throw std::invalid_argument(std::string(what) + ": expected " + std::to_string(expected) + ", got " +
                              std::to_string(number));
}

}  // namespace

int widest_vector_bits() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f")) return 512;
  if (__builtin_cpu_supports("avx2")) return 256;
#endif
  return 128;
}

MuscleNetwork::Kernels MuscleNetwork::choose_kernels(int vector_bits) {
#ifdef __x86_64__
  if (vector_bits == 512) return {multiply_512<4, 1>, multiply_512<4, kRows>};
  if (vector_bits == 256) return {multiply_256<8, 1>, multiply_256<2, kRows>};
#endif
  if (vector_bits == 128) return {multiply_128<8, 1>, multiply_128<2, kRows>};
  throw std::invalid_argument("there is no kernel of " + std::to_string(vector_bits) + " bits");
}

MuscleNetwork::MuscleNetwork(const std::vector<Level>& levels, const std::vector<float>& packed_scale,
                             const std::vector<float>& torque_scale, int vector_bits)
    : kernels_(choose_kernels(vector_bits)), scale_(packed_scale), n_packed_(packed_scale.size()) {
  scale_.insert(scale_.end(), torque_scale.begin(), torque_scale.end());
  if (levels.empty() || levels.front().empty()) throw std::invalid_argument("a muscle network needs a layer");
  n_muscles_ = levels.front().back().n_out;
  for (const Level& level : levels) {
    std::size_t n_in = scale_.size() + (levels_.empty() ? 0 : n_muscles_ + 1);
    std::vector<Layer> layers;
    for (const MuscleLayerSpec& spec : level) {
      check_size("inputs of a layer", spec.n_in, n_in);
      layers.push_back(make_layer(spec));
      n_widest_ = std::max(n_widest_, layers.back().bias.size());
      n_in = spec.n_out;
    }
    check_size("outputs of a level", n_in, n_muscles_);
    levels_.push_back(std::move(layers));
  }
  n_workspace_ = 2 * n_muscles_ + 1 + scale_.size() + 2 * n_widest_;
}

MuscleNetwork::Layer MuscleNetwork::make_layer(const MuscleLayerSpec& spec) {
  Layer layer{std::vector<Line>(spec.n_in * padded(spec.n_out) / kNarrow), std::vector<float>(padded(spec.n_out)), spec.n_in};
  std::copy_n(spec.bias, spec.n_out, layer.bias.data());
  float* out = reinterpret_cast<float*>(layer.weight.data());
  for (std::size_t done = 0, width; done < layer.bias.size(); done += width) {
    width = block_width(layer.bias.size() - done);
    const std::size_t n_real = std::min(width, spec.n_out - done);
    for (std::size_t k = 0; k < spec.n_in; ++k, out += width) std::copy_n(spec.weight + k * spec.n_out + done, n_real, out);
  }
  return layer;
}

void MuscleNetwork::activate(const Row* rows, std::size_t n_rows) const {
  for (; n_rows >= kRows; n_rows -= kRows, rows += kRows) activate_together<kRows>(rows, kernels_.several);
  for (; n_rows > 0; --n_rows, ++rows) activate_together<1>(rows, kernels_.one);
}

template <std::size_t R>
void MuscleNetwork::activate_together(const Row* rows, Multiply multiply) const {
  // Of each row, in its workspace:
  float* sum[R];     // pre-activations up to the level in hand [M]
  float* x[R];       // [0.5 * previous, weight, packed, torque]
  float* inputs[R];  // what the first level gets of it: from packed on
  float* y[R];
  float* z[R];
  for (std::size_t r = 0; r < R; ++r) {
    sum[r] = rows[r].workspace;
    x[r] = sum[r] + n_muscles_;
    inputs[r] = x[r] + n_muscles_ + 1;
    y[r] = inputs[r] + scale_.size();
    z[r] = y[r] + n_widest_;
    for (std::size_t k = 0; k < scale_.size(); ++k) {
      inputs[r][k] = static_cast<float>(k < n_packed_ ? rows[r].packed[k] : rows[r].desired_torque[k - n_packed_]) / scale_[k];
    }
  }
  // From `from` through the layers, by turns in `y` and `z`; where the result lies.
  const auto forward = [&](const std::vector<Layer>& layers, float* const* from) {
    float* const* to = y;
    for (const Layer& layer : layers) {
      multiply(from, layer.n_in, layer.weights(), layer.bias.data(), layer.bias.size(), &layer != &layers.back(), to);
      from = to;
      to = to == y ? z : y;
    }
    return from;
  };
  float* const* added = forward(levels_.front(), inputs);
  for (std::size_t r = 0; r < R; ++r) std::copy_n(added[r], n_muscles_, sum[r]);
  for (std::size_t level = 1; level < levels_.size(); ++level) {
    const auto share = [&](std::size_t r) { return level + 1 < levels_.size() ? 1.0f : static_cast<float>(rows[r].weight); };
    for (std::size_t r = 0; r < R; ++r) {
      for (std::size_t m = 0; m < n_muscles_; ++m) x[r][m] = 0.5f * sum[r][m];
      x[r][n_muscles_] = share(r);
    }
    added = forward(levels_[level], x);
    for (std::size_t r = 0; r < R; ++r) {
      for (std::size_t m = 0; m < n_muscles_; ++m) sum[r][m] += share(r) * added[r][m];
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t m = 0; m < n_muscles_; ++m) {
      // What is not a number must stay visible, so the comparison is this way round.
      rows[r].activation[m] = sum[r][m] <= 0.0f ? 0.0 : static_cast<float>(std::tanh(static_cast<double>(sum[r][m])));
    }
  }
}

}  // namespace sb3_hrl
