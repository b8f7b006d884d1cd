#include "sb3_hrl/low_level.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "sb3_hrl/errors.hpp"
#include "sb3_hrl/mujoco_handle.hpp"

namespace sb3_hrl {
namespace {

// What MuJoCo's solver wants as room for its factor, beside n * n.
constexpr std::size_t kQpColumns = 7;

std::size_t n_muscles_of(const MuscleState& state) { return state.torque_per_activation.size() / state.torque_low.size(); }

}  // namespace

QpLowLevel::QpLowLevel(double torque_scale, double effort) : torque_scale_(torque_scale), effort_(effort) {
  if (!(std::isfinite(torque_scale) && torque_scale > 0.0)) throw std::invalid_argument("torque_scale: expected a number > 0");
  if (!(std::isfinite(effort) && effort > 0.0)) throw std::invalid_argument("effort: expected a number > 0");
}

// matrix [M, M], factor [M, M + 7], vector, lower and upper bound [M].
Workspace QpLowLevel::make_workspace(const MuscleInterface& interface) const {
  const std::size_t n = interface.n_muscles();
  return {std::vector<double>(n * n + n * (n + kQpColumns) + 3 * n), {}};
}

void QpLowLevel::activate(const Question* questions, std::size_t n) const {
  for (std::size_t i = 0; i < n; ++i) activate(questions[i]);
}

void QpLowLevel::activate(const Question& question) const {
  const MuscleState& state = *question.state;
  const std::size_t n = n_muscles_of(state), n_coords = state.torque_low.size();
  double* activation = question.activation;
  double* matrix = question.workspace->doubles.data();
  double* factor = matrix + n * n;
  double* vector = factor + n * (n + kQpColumns);
  double* lower = vector + n;
  double* upper = lower + n;
  const double square = torque_scale_ * torque_scale_;
  std::fill_n(matrix, n * n, 0.0);
  std::fill_n(vector, n, 0.0);
  for (std::size_t d = 0; d < n_coords; ++d) {
    const double* row = state.torque_per_activation.data() + d * n;
    for (std::size_t i = 0; i < n; ++i) {
      if (row[i] == 0.0) continue;  // most muscles span one or two joints; adding zeros would change no bit
      for (std::size_t j = 0; j < n; ++j) matrix[i * n + j] += row[i] * row[j];
      vector[i] -= row[i] * question.desired_torque[d];
    }
  }
  for (std::size_t i = 0; i < n * n; ++i) matrix[i] /= square;
  for (std::size_t i = 0; i < n; ++i) {
    vector[i] /= square;
    matrix[i * n + i] += effort_;
    lower[i] = 0.0;
    upper[i] = 1.0;
    activation[i] = 0.0;
  }
  int n_free = 0;
  guarded([&] { n_free = mju_boxQP(activation, factor, nullptr, matrix, vector, static_cast<int>(n), lower, upper); });
  if (n_free < 0) throw NativeError("the quadratic programme for the activations failed");
}

void TorqueLowLevel::activate(const Question* questions, std::size_t n) const {
  for (std::size_t i = 0; i < n; ++i) std::fill_n(questions[i].activation, n_muscles_of(*questions[i].state), 0.0);
}

}  // namespace sb3_hrl
