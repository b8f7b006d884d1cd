#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "check.hpp"
#include "sb3_hrl/moments.hpp"

namespace sb3_hrl::test {
namespace {

void columns_have_their_moments_for_any_number_of_threads() {
  constexpr std::size_t kRows = 5, kColumns = 100;
  std::vector<double> numbers(kRows * kColumns);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto row = static_cast<double>(i / kColumns), column = static_cast<double>(i % kColumns);
    numbers[i] = column * row;
  }
  for (const int n_threads : {0, 1, 3}) {
    ThreadPool pool(n_threads, ThreadPool::Caller::works);
    std::vector<double> means(kColumns), variances(kColumns);
    column_moments(pool, numbers.data(), kRows, kColumns, means.data(), variances.data(), 0);
    for (std::size_t k = 0; k < kColumns; ++k) {
      CHECK_EQUAL(means[k], 2.0 * static_cast<double>(k));
      CHECK_EQUAL(variances[k], 2.0 * static_cast<double>(k * k));
    }
  }
}

void returns_begin_again_after_an_episode() {
  std::vector<double> returns{4.0, 0.0};
  const std::vector<float> rewards{1.0f, 2.0f, 3.0f, 4.0f};
  const std::vector<std::uint8_t> dones{1, 0, 0, 0};
  const Moments moments = return_moments(returns.data(), rewards.data(), dones.data(), 2, 2, 0.5, 0);
  CHECK_EQUAL(returns[0], 3.0);
  CHECK_EQUAL(returns[1], 5.0);
  CHECK_EQUAL(moments.mean, 3.25);  // of 3, 2, 3, 5
  CHECK_EQUAL(moments.variance, 1.1875);
}

}  // namespace

void add_moments_tests(std::map<std::string, std::function<void()>>& tests) {
  tests["moments: columns have theirs for any number of threads"] = columns_have_their_moments_for_any_number_of_threads;
  tests["moments: returns begin again after an episode"] = returns_begin_again_after_an_episode;
}

}  // namespace sb3_hrl::test
