#pragma once

#include <cstddef>
#include <cstdint>

#include "sb3_hrl/thread_pool.hpp"

namespace sb3_hrl {

// numpy.mean and numpy.var of numbers [n_rows, n_columns] along the rows, with NumPy's last bit. Each worker takes some of the
// columns, so the number of threads changes nothing. means, variances: [n_columns]. sum_block: see blockwise_sum.
void column_moments(ThreadPool& pool, const double* numbers, std::size_t n_rows, std::size_t n_columns, double* means,
                    double* variances, std::size_t sum_block);

struct Moments {
  double mean;
  double variance;
};

// Go on with discounted returns [E] through a rollout, returns * gamma + rewards, and begin again where an episode ended.
// Arrays: rewards, dones [T, E]. The moments of all of them [T * E], with NumPy's last bit.
Moments return_moments(double* returns, const float* rewards, const std::uint8_t* dones, std::size_t n_steps,
                       std::size_t n_envs, double gamma, std::size_t sum_block);

}  // namespace sb3_hrl
