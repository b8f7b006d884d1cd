#include "sb3_hrl/muscle_network.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

namespace sb3_hrl {
namespace {

constexpr float kSlope = 0.2f;

void check_size(const char* what, std::size_t number, std::size_t expected) {
  if (number == expected) return;
  throw std::invalid_argument(std::string(what) + ": expected " + std::to_string(expected) + ", got " +
                              std::to_string(number));
}

}  // namespace

MuscleNetwork::MuscleNetwork(const std::vector<Level>& levels, const std::vector<float>& packed_scale,
                             const std::vector<float>& torque_scale, int vector_bits)
    : scale_(packed_scale), n_packed_(packed_scale.size()) {
  scale_.insert(scale_.end(), torque_scale.begin(), torque_scale.end());
  if (levels.empty() || levels.front().empty()) throw std::invalid_argument("a muscle network needs a layer");
  n_muscles_ = levels.front().back().n_out;
  for (const Level& level : levels) {
    std::size_t n_in = scale_.size() + (levels_.empty() ? 0 : n_muscles_ + 1);
    std::vector<DenseLayer> layers;
    for (const MuscleLayerSpec& spec : level) {
      check_size("inputs of a layer", spec.n_in, n_in);
      layers.emplace_back(spec.n_in, spec.n_out, vector_bits).set(spec.weight, spec.n_out, 1, spec.bias);
      n_widest_ = std::max(n_widest_, spec.n_out);
      n_in = spec.n_out;
    }
    check_size("outputs of a level", n_in, n_muscles_);
    levels_.push_back(std::move(layers));
  }
  n_workspace_ = 2 * n_muscles_ + 1 + scale_.size() + 2 * n_widest_;
}

void MuscleNetwork::activate(const Row* rows, std::size_t n_rows) const {
  for (; n_rows >= kRows; n_rows -= kRows, rows += kRows) activate_together<kRows>(rows);
  for (; n_rows > 0; --n_rows, ++rows) activate_together<1>(rows);
}

template <std::size_t R>
void MuscleNetwork::activate_together(const Row* rows) const {
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
  const auto forward = [&](const std::vector<DenseLayer>& layers, float* const* from) {
    float* const* to = y;
    for (const DenseLayer& layer : layers) {
      layer.apply(from, to, R, &layer != &layers.back() ? kSlope : 1.0f);
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
