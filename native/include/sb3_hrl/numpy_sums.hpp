#pragma once

// Sums in the order in which NumPy adds, so that they have its last bit.

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace sb3_hrl {

// numpy.sum of the contiguous numbers element(start) … element(start + n - 1): plain below 8 of them, 8 accumulators up to
// 128, halves above.
template <typename Element>
auto pairwise_sum(const Element& element, std::size_t start, std::size_t n) -> decltype(element(start)) {
  using Number = decltype(element(start));
  if (n < 8) {
    Number sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += element(start + i);
    return sum;
  }
  if (n > 128) {
    const std::size_t half = n / 2 - n / 2 % 8;
    return pairwise_sum(element, start, half) + pairwise_sum(element, start + half, n - half);
  }
  Number r[8];
  for (std::size_t k = 0; k < 8; ++k) r[k] = element(start + k);
  std::size_t i = 8;
  for (; i < n - n % 8; i += 8) {
    for (std::size_t k = 0; k < 8; ++k) r[k] += element(start + i + k);
  }
  Number sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
  for (; i < n; ++i) sum += element(start + i);
  return sum;
}

// numpy.sum of many: NumPy 1 adds in blocks (of 8192), each in pairs, one after the other; block is 0 for NumPy 2, which does not.
template <typename Element>
auto blockwise_sum(const Element& element, std::size_t n, std::size_t block) -> decltype(element(n)) {
  if (block == 0) return pairwise_sum(element, 0, n);
  decltype(element(n)) sum = 0;
  for (std::size_t start = 0; start < n; start += block) sum += pairwise_sum(element, start, std::min(block, n - start));
  return sum;
}

// How the dot product of NumPy's BLAS adds a few elements: that depends on the library and on the processor.
enum class NormOrder {
  plain = 0,     // ((x0*x0 + x1*x1) + x2*x2) + …
  fused = 1,     // the same, with fused multiply-adds
  strided = 2,   // the elements with an even index, then those with an odd one, then both
};

// numpy.linalg.norm of a few elements.
inline double norm(const double* numbers, std::size_t n, NormOrder order) {
  double sum = 0.0, odd_sum = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    if (order == NormOrder::fused) {
      sum = std::fma(numbers[i], numbers[i], sum);
    } else {
      double& part = order == NormOrder::strided && i % 2 == 1 ? odd_sum : sum;
      part += numbers[i] * numbers[i];
    }
  }
  return std::sqrt(sum + odd_sum);
}

}  // namespace sb3_hrl
