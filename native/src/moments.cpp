#include "sb3_hrl/moments.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "sb3_hrl/numpy_sums.hpp"

namespace sb3_hrl {
namespace {

// Columns of one task: whole cache lines of a row.
constexpr std::size_t kColumns = 32;

// NumPy adds neighbouring numbers in pairs.
Moments moments_of_neighbours(const double* numbers, std::size_t n, std::size_t sum_block) {
  const auto count = static_cast<double>(n);
  const double mean = blockwise_sum([&](std::size_t i) { return numbers[i]; }, n, sum_block) / count;
  const auto square = [&](std::size_t i) { return (numbers[i] - mean) * (numbers[i] - mean); };
  return {mean, blockwise_sum(square, n, sum_block) / count};
}

// Rows it adds one after the other.
void moments_of_columns(const double* numbers, std::size_t n_rows, std::size_t n_columns, std::size_t n, double* means,
                        double* variances) {
  const auto count = static_cast<double>(n_rows);
  std::array<double, kColumns> sums{}, squares{};
  for (std::size_t row = 0; row < n_rows; ++row) {
    for (std::size_t k = 0; k < n; ++k) sums[k] += numbers[row * n_columns + k];
  }
  for (std::size_t k = 0; k < n; ++k) means[k] = sums[k] / count;
  for (std::size_t row = 0; row < n_rows; ++row) {
    for (std::size_t k = 0; k < n; ++k) {
      const double difference = numbers[row * n_columns + k] - means[k];
      squares[k] += difference * difference;
    }
  }
  for (std::size_t k = 0; k < n; ++k) variances[k] = squares[k] / count;
}

}  // namespace

void column_moments(ThreadPool& pool, const double* numbers, std::size_t n_rows, std::size_t n_columns, double* means,
                    double* variances, std::size_t sum_block) {
  if (n_columns == 1) {
    const Moments moments = moments_of_neighbours(numbers, n_rows, sum_block);
    *means = moments.mean;
    *variances = moments.variance;
    return;
  }
  pool.run((n_columns + kColumns - 1) / kColumns, [&](std::size_t index) {
    const std::size_t first = index * kColumns;
    moments_of_columns(numbers + first, n_rows, n_columns, std::min(kColumns, n_columns - first), means + first,
                       variances + first);
  });
}

Moments return_moments(double* returns, const float* rewards, const std::uint8_t* dones, std::size_t n_steps,
                       std::size_t n_envs, double gamma, std::size_t sum_block) {
  std::vector<double> all(n_steps * n_envs);
  for (std::size_t i = 0; i < all.size(); ++i) {
    double& current = returns[i % n_envs];
    all[i] = current * gamma + static_cast<double>(rewards[i]);
    current = dones[i] != 0 ? 0.0 : all[i];
  }
  return moments_of_neighbours(all.data(), all.size(), sum_block);
}

}  // namespace sb3_hrl
