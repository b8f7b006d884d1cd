#pragma once

#include <cstddef>
#include <vector>

namespace sb3_hrl {

// One linear layer of a muscle network, y[j] = bias[j] + sum over k of x[k] * weight[k][j]. The memory is the caller's and is
// copied.
struct MuscleLayerSpec {
  const float* weight;  // [n_in, n_out]
  const float* bias;    // [n_out]
  std::size_t n_in;
  std::size_t n_out;
};

// The widest vector registers of this processor that the kernel has a copy for.
int widest_vector_bits();

// From torque per activation and wanted torque to activations, by a network or a cascade of them.
//
// Each sum runs over the inputs in order, in float32 and without fused multiply-add; only different outputs share a vector
// register. So the bits depend neither on the processor's vector width nor on who else is computed; the NumPy twin
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
  static constexpr std::size_t kRows = 4;
  void activate(const Row* rows, std::size_t n_rows) const;

 private:
  // Sixteen numbers in one line of the cache: what straddles two lines is loaded twice.
  struct alignas(64) Line {
    float numbers[16];
  };
  struct Layer {
    std::vector<Line> weight;  // block by block, [n_in, width of the block]
    std::vector<float> bias;   // [n_out], zeros up to the last block's end
    std::size_t n_in;
    const float* weights() const { return reinterpret_cast<const float*>(weight.data()); }
  };

  // y = x weight + bias for a number of rows, each with its own x and y.
  using Multiply = void (*)(const float* const* x, std::size_t n_in, const float* weight, const float* bias,
                            std::size_t n_out, bool is_hidden, float* const* y);
  struct Kernels {
    Multiply one;
    Multiply several;  // kRows of them
  };

  static Kernels choose_kernels(int vector_bits);
  static Layer make_layer(const MuscleLayerSpec& spec);
  template <std::size_t R>
  void activate_together(const Row* rows, Multiply multiply) const;

  Kernels kernels_;
  std::vector<std::vector<Layer>> levels_;
  std::vector<float> scale_;  // [P + D]
  std::size_t n_packed_;
  std::size_t n_muscles_;
  std::size_t n_widest_ = 0;
  std::size_t n_workspace_;
};

}  // namespace sb3_hrl
