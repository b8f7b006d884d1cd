#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "sb3_hrl/muscle_network.hpp"
#include "sb3_hrl/philox.hpp"

namespace sb3_hrl::test {
namespace {

// Three levels of odd sizes, so that every kind of block is used and padded.
struct Networks {
  static constexpr std::size_t n_packed = 7, n_coords = 3, n_muscles = 18;
  std::vector<std::vector<std::size_t>> hidden = {{150, 64}, {}, {33}};
  std::vector<std::vector<float>> weights, biases;
  std::vector<MuscleNetwork::Level> levels;
  std::vector<float> packed_scale, torque_scale;

  Networks() {
    RandomStream random(3, 0);
    const auto numbers = [&](std::size_t n, double scale) {
      std::vector<float> drawn(n);
      for (float& number : drawn) number = static_cast<float>(scale * random.normal());
      return drawn;
    };
    packed_scale = std::vector<float>(n_packed, 3.0f);
    torque_scale = std::vector<float>(n_coords, 7.0f);
    std::vector<std::vector<std::size_t>> sizes;
    for (std::size_t level = 0; level < hidden.size(); ++level) {
      std::size_t n_in = n_packed + n_coords + (level == 0 ? 0 : n_muscles + 1);
      sizes.push_back({});
      for (const std::size_t n_out : hidden[level]) sizes[level].insert(sizes[level].end(), {n_in, n_out}), n_in = n_out;
      sizes[level].insert(sizes[level].end(), {n_in, n_muscles});
      for (std::size_t i = 0; i < sizes[level].size(); i += 2) {
        weights.push_back(numbers(sizes[level][i] * sizes[level][i + 1], 1.0 / std::sqrt(sizes[level][i])));
        biases.push_back(numbers(sizes[level][i + 1], 0.1));
      }
    }
    std::size_t at = 0;
    for (const auto& of_level : sizes) {
      levels.emplace_back();
      for (std::size_t i = 0; i < of_level.size(); i += 2, ++at) {
        levels.back().push_back({weights[at].data(), biases[at].data(), of_level[i], of_level[i + 1]});
      }
    }
  }
};

std::vector<float> forward(const MuscleNetwork::Level& level, std::vector<float> x) {
  for (std::size_t number = 0; number < level.size(); ++number) {
    const MuscleLayerSpec& layer = level[number];
    std::vector<float> y(layer.bias, layer.bias + layer.n_out);
    for (std::size_t j = 0; j < layer.n_out; ++j) {
      for (std::size_t k = 0; k < layer.n_in; ++k) y[j] += x[k] * layer.weight[k * layer.n_out + j];
      if (number + 1 < level.size() && !(y[j] > 0.0f)) y[j] *= 0.2f;
    }
    x = y;
  }
  return x;
}

// One number after the other.
std::vector<double> plain(const Networks& networks, const std::vector<double>& packed, const std::vector<double>& torque,
                          double weight) {
  std::vector<float> inputs, total;
  for (std::size_t i = 0; i < packed.size(); ++i) inputs.push_back(static_cast<float>(packed[i]) / networks.packed_scale[i]);
  for (std::size_t i = 0; i < torque.size(); ++i) inputs.push_back(static_cast<float>(torque[i]) / networks.torque_scale[i]);
  total = forward(networks.levels[0], inputs);
  for (std::size_t level = 1; level < networks.levels.size(); ++level) {
    const float share = level + 1 == networks.levels.size() ? static_cast<float>(weight) : 1.0f;
    std::vector<float> x;
    for (const float u : total) x.push_back(0.5f * u);
    x.push_back(share);
    x.insert(x.end(), inputs.begin(), inputs.end());
    const std::vector<float> added = forward(networks.levels[level], x);
    for (std::size_t m = 0; m < total.size(); ++m) total[m] += share * added[m];
  }
  std::vector<double> activation;
  for (const float u : total) activation.push_back(u > 0.0f ? static_cast<float>(std::tanh(static_cast<double>(u))) : 0.0f);
  return activation;
}

// What 23 environments ask: some of them in fours, the last three alone.
struct Asked {
  static constexpr std::size_t n_rows = 23;
  std::vector<std::vector<double>> packed, torque, activation;
  std::vector<double> weight;
  std::vector<std::vector<float>> workspace;
  std::vector<MuscleNetwork::Row> rows;

  explicit Asked(const MuscleNetwork& network)
      : packed(n_rows, std::vector<double>(Networks::n_packed)),
        torque(n_rows, std::vector<double>(Networks::n_coords)),
        activation(n_rows, std::vector<double>(Networks::n_muscles, -1.0)),
        workspace(n_rows, std::vector<float>(network.n_workspace())) {
    RandomStream random(4, 0);
    for (std::size_t row = 0; row < n_rows; ++row) {
      for (double& number : packed[row]) number = 5.0 * random.normal();
      for (double& number : torque[row]) number = 5.0 * random.normal();
      weight.push_back(random.uniform());
      rows.push_back({packed[row].data(), torque[row].data(), weight[row], workspace[row].data(), activation[row].data()});
    }
  }
};

void every_vector_width_and_number_of_rows_gives_the_plain_bits() {
  const Networks networks;
  int n_on = 0;
  for (int bits = 128; bits <= widest_vector_bits(); bits *= 2) {
    const MuscleNetwork network(networks.levels, networks.packed_scale, networks.torque_scale, bits);
    for (const std::size_t n_together : {std::size_t{1}, std::size_t{3}, std::size_t{4}, std::size_t{6}, Asked::n_rows}) {
      Asked asked(network);
      for (std::size_t first = 0; first < Asked::n_rows; first += n_together) {
        network.activate(asked.rows.data() + first, std::min(n_together, Asked::n_rows - first));
      }
      for (std::size_t row = 0; row < Asked::n_rows; ++row) {
        const std::vector<double> expected = plain(networks, asked.packed[row], asked.torque[row], asked.weight[row]);
        for (std::size_t m = 0; m < expected.size(); ++m) {
          CHECK_EQUAL(asked.activation[row][m], expected[m]);
          n_on += expected[m] > 0.0;
        }
      }
    }
  }
  CHECK_EQUAL(n_on > 100, true);
}

void the_order_of_a_sum_matters() {
  // Backwards the last bits differ: the test above would see another order.
  float forwards = 0.0f, backwards = 0.0f;
  for (int i = 1; i <= 100; ++i) forwards += 1.0f / static_cast<float>(i);
  for (int i = 100; i >= 1; --i) backwards += 1.0f / static_cast<float>(i);
  CHECK_EQUAL(forwards == backwards, false);
}

void what_is_not_a_number_stays_visible() {
  const Networks networks;
  const MuscleNetwork network(networks.levels, networks.packed_scale, networks.torque_scale);
  Asked asked(network);
  asked.packed[2].assign(Networks::n_packed, std::nan(""));
  network.activate(asked.rows.data(), Asked::n_rows);
  for (std::size_t row = 0; row < Asked::n_rows; ++row) {  // in its own row
    for (const double a : asked.activation[row]) CHECK_EQUAL(std::isnan(a), row == 2);
  }
}

void sizes_that_do_not_fit_are_refused() {
  const Networks networks;
  const auto message = [&](const std::vector<MuscleNetwork::Level>& levels, int bits) {
    return message_of<std::invalid_argument>(
        [&] { MuscleNetwork(levels, networks.packed_scale, networks.torque_scale, bits); });
  };
  CHECK_EQUAL(message({}, 128), "a muscle network needs a layer");
  CHECK_EQUAL(message({networks.levels[1]}, 128), "inputs of a layer: expected 10, got 29");
  CHECK_EQUAL(message({networks.levels[0], networks.levels[0]}, 128), "inputs of a layer: expected 29, got 10");
  CHECK_EQUAL(message({networks.levels[0], {}}, 128), "outputs of a level: expected 18, got 29");
  CHECK_EQUAL(message(networks.levels, 64), "there is no kernel of 64 bits");
}

}  // namespace

void add_muscle_network_tests(std::map<std::string, std::function<void()>>& tests) {
  tests["muscle network: every vector width and number of rows gives the plain bits"] = every_vector_width_and_number_of_rows_gives_the_plain_bits;
  tests["muscle network: the order of a sum matters"] = the_order_of_a_sum_matters;
  tests["muscle network: what is not a number stays visible"] = what_is_not_a_number_stays_visible;
  tests["muscle network: sizes that do not fit are refused"] = sizes_that_do_not_fit_are_refused;
}

}  // namespace sb3_hrl::test
