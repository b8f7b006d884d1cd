// Sums in order, whatever the width of the registers, the number of rows and the shape of the layer.

#include "sb3_hrl/dense.hpp"

#include <functional>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "sb3_hrl/philox.hpp"

namespace sb3_hrl::test {
namespace {

std::vector<float> draw(RandomStream& random, std::size_t n) {
  std::vector<float> numbers(n);
  for (float& number : numbers) number = static_cast<float>(random.normal());
  return numbers;
}

// With guards behind the outputs: nothing may be written there.
void check_layer(std::size_t n_in, std::size_t n_out, std::size_t n_rows, float slope, int bits) {
  RandomStream random(7, 0);
  const std::vector<float> weight = draw(random, n_in * n_out), bias = draw(random, n_out), x = draw(random, n_rows * n_in);
  std::vector<float> transposed(weight.size());
  for (std::size_t k = 0; k < n_in; ++k) {
    for (std::size_t j = 0; j < n_out; ++j) transposed[j * n_in + k] = weight[k * n_out + j];
  }
  for (const bool is_transposed : {false, true}) {
    DenseLayer layer(n_in, n_out, bits);
    if (is_transposed) {
      layer.set(transposed.data(), 1, n_in, bias.data());
    } else {
      layer.set(weight.data(), n_out, 1, bias.data());
    }
    std::vector<std::vector<float>> y(n_rows, std::vector<float>(n_out + 1, 99.0f));
    std::vector<const float*> inputs;
    std::vector<float*> outputs;
    for (std::size_t row = 0; row < n_rows; ++row) {
      inputs.push_back(x.data() + row * n_in);
      outputs.push_back(y[row].data());
    }
    layer.apply(inputs.data(), outputs.data(), n_rows, slope);
    for (std::size_t row = 0; row < n_rows; ++row) {
      for (std::size_t j = 0; j < n_out; ++j) {
        volatile float sum = bias[j];
        for (std::size_t k = 0; k < n_in; ++k) {
          const volatile float product = inputs[row][k] * weight[k * n_out + j];
          sum = sum + product;
        }
        CHECK_EQUAL(y[row][j], sum > 0.0f ? sum : slope * sum);
      }
      CHECK_EQUAL(y[row][n_out], 99.0f);
    }
  }
}

void every_shape_gives_the_plain_bits() {
  for (int bits = 128; bits <= widest_vector_bits(); bits *= 2) {
    for (const std::size_t n_out : {1, 6, 15, 16, 17, 60, 63, 64, 65, 80, 130}) {
      for (const std::size_t n_rows : {1, 3, 4, 6, 8, 9, 13}) check_layer(23, n_out, n_rows, 1.0f, bits);
      check_layer(1, n_out, 5, 0.2f, bits);
    }
  }
}

void nan_in_is_nan_out() {
  const float weight = 1.0f, bias = 0.0f, x = std::numeric_limits<float>::quiet_NaN();
  DenseLayer layer(1, 1);
  layer.set(&weight, 1, 1, &bias);
  const float* inputs[] = {&x};
  for (const float slope : {1.0f, 0.2f}) {
    float y = 0.0f;
    float* outputs[] = {&y};
    layer.apply(inputs, outputs, 1, slope);
    CHECK_EQUAL(y != y, true);
  }
}

void other_widths_are_refused() {
  CHECK_EQUAL(message_of<std::invalid_argument>([] { DenseLayer(1, 1, 64); }), "there is no kernel of 64 bits");
}

}  // namespace

void add_dense_tests(std::map<std::string, std::function<void()>>& tests) {
  tests["dense: every shape gives the plain bits"] = every_shape_gives_the_plain_bits;
  tests["dense: nan in is nan out"] = nan_in_is_nan_out;
  tests["dense: other widths are refused"] = other_widths_are_refused;
}

}  // namespace sb3_hrl::test
