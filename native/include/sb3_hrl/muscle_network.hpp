#pragma once

#include <cstddef>
#include <vector>

#include "sb3_hrl/dense.hpp"

namespace sb3_hrl {

// One linear layer of a muscle network, y[j] = bias[j] + sum over k of x[k] * weight[k][j]. The memory is the caller's and is
// copied.
struct MuscleLayerSpec {
  const float* weight;  // [n_in, n_out]
  const float* bias;    // [n_out]
  std::size_t n_in;
  std::size_t n_out;
};

// From torque per activation and wanted torque to activations, by a network or a cascade of them.
//
// The bits depend neither on the processor's vector width nor on who else is computed (DenseLayer); the NumPy twin
// sb3_hrl.muscle.muscles.activate has the same.
class MuscleNetwork {
 public:
  using Level = std::vector<MuscleLayerSpec>;  // LeakyReLU(0.2) between the layers

  // `levels`: the first maps [packed, torque] to M pre-activations, each later one [0.5 * previous, weight, packed, torque].
  // `packed_scale` [P] and `torque_scale` [D] divide the inputs. `vector_bits`: no more than the processor has. Throws
  // std::invalid_argument where sizes do not fit.
  MuscleNetwork(const std::vector<Level>& levels, const std::vector<float>& packed_scale,
                const std::vector<float>& torque_scale, int vector_bits = widest_vector_bits());

  std::size_t n_packed() const { return n_packed_; }
  std::size_t n_coords() const { return scale_.size() - n_packed_; }
  std::size_t n_muscles() const { return n_muscles_; }
  std::size_t n_workspace() const { return n_workspace_; }  // floats that `activate` needs

  // What one environment asks, and where its answer goes.
  struct Row {
    const double* packed;          // [P]
    const double* desired_torque;  // [D]
    double weight;                 // of the newest level, read where there are several; those between count in full
    float* workspace;              // [n_workspace], its own
    double* activation;            // [M], written, in [0, 1]
  };

  // So many rows share a pass over the weights; the bits are those of a row alone. Thread-safe.
  static constexpr std::size_t kRows = DenseLayer::kRows;
  void activate(const Row* rows, std::size_t n_rows) const;

 private:
  template <std::size_t R>
  void activate_together(const Row* rows) const;

  std::vector<std::vector<DenseLayer>> levels_;
  std::vector<float> scale_;  // [P + D]
  std::size_t n_packed_;
  std::size_t n_muscles_;
  std::size_t n_widest_ = 0;
  std::size_t n_workspace_;
};

}  // namespace sb3_hrl
