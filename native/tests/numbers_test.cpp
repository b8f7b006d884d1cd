#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "check.hpp"
#include "sb3_hrl/numpy_sums.hpp"
#include "sb3_hrl/philox.hpp"

namespace sb3_hrl::test {
namespace {

using Block = std::array<std::uint32_t, 4>;

void check_block(const Block& block, const Block& expected) {
  for (std::size_t i = 0; i < 4; ++i) CHECK_EQUAL(block[i], expected[i]);
}

// The known answers of the authors' own library, Random123.
void philox_gives_the_known_answers() {
  check_block(philox({0, 0, 0, 0}, {0, 0}), {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr std::uint32_t ones = 0xffffffff;
  check_block(philox({ones, ones, ones, ones}, {ones, ones}), {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  check_block(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
              {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

void a_stream_is_fixed_by_seed_index_and_purpose() {
  RandomStream stream(7, 3), same(7, 3), other_index(7, 4), other_seed(8, 3), high_seed(7 + (1ull << 32), 3);
  const double first = stream.uniform();
  CHECK_EQUAL(same.uniform(), first);
  CHECK_EQUAL(other_index.uniform() == first, false);
  CHECK_EQUAL(other_seed.uniform() == first, false);
  CHECK_EQUAL(high_seed.uniform() == first, false);
  // Its whole state is the number of draws, of whichever kind.
  stream.normal();
  stream.uniform(-1.0, 1.0);
  CHECK_EQUAL(stream.n_drawn(), std::uint64_t{3});
  RandomStream continued(7, 3, RandomPurpose::reset, 3);
  CHECK_EQUAL(continued.uniform(), stream.uniform());
}

void uniform_and_normal_have_their_moments() {
  RandomStream stream(1, 0);
  constexpr int n = 200000;
  double sum = 0.0, squares = 0.0, lowest = 1.0, highest = -1.0;
  for (int i = 0; i < n; ++i) {
    const double number = stream.uniform(-1.0, 3.0);
    CHECK_EQUAL(number >= -1.0 && number < 3.0, true);
    sum += number;
    lowest = std::min(lowest, number);
    highest = std::max(highest, number);
  }
  CHECK_EQUAL(std::abs(sum / n - 1.0) < 0.01, true);
  CHECK_EQUAL(lowest < -0.999 && highest > 2.999, true);
  sum = 0.0;
  double fourths = 0.0;
  for (int i = 0; i < n; ++i) {
    const double number = stream.normal();
    CHECK_EQUAL(std::isfinite(number), true);
    sum += number;
    squares += number * number;
    fourths += number * number * number * number;
  }
  CHECK_EQUAL(std::abs(sum / n) < 0.01, true);
  CHECK_EQUAL(std::abs(squares / n - 1.0) < 0.02, true);
  CHECK_EQUAL(std::abs(fourths / n - 3.0) < 0.1, true);
}

void an_empty_or_tiny_range_is_kept() {
  RandomStream stream(1, 0);
  CHECK_EQUAL(stream.uniform(2.0, 2.0), 2.0);
  const double high = std::nextafter(1.0, 2.0);
  for (int i = 0; i < 100; ++i) CHECK_EQUAL(stream.uniform(1.0, high), 1.0);  // half of them round up to `high`
}

// What numpy.sum gives. 2**53 swallows a one that is added to it alone.
void sums_are_pairwise() {
  constexpr double big = 9007199254740992.0;
  const auto sum = [](const std::vector<double>& numbers) {
    return pairwise_sum([&](std::size_t i) { return numbers[i]; }, 0, numbers.size());
  };
  CHECK_EQUAL(sum({}), 0.0);
  CHECK_EQUAL(sum({big, 1, 1, 1, 1, 1, 1}) - big, 0.0);           // seven: plain order
  CHECK_EQUAL(sum({big, 1, 1, 1, 1, 1, 1, 1}) - big, 6.0);        // eight: ((big+1) + (1+1)) + ((1+1) + (1+1))
  CHECK_EQUAL(sum({big, 1, 1, 1, 1, 1, 1, 1, 1}) - big, 8.0);     // the ninth comes alone, and rounds up
  std::vector<double> numbers(200, 1.0);                          // two halves, of 96 and 104
  numbers[0] = big;
  CHECK_EQUAL(sum(numbers) - big, 188.0);
  const auto tenth = [](std::size_t) { return 0.1f; };
  static_assert(std::is_same_v<decltype(pairwise_sum(tenth, 0, 9)), float>, "single precision stays single");
}

void a_norm_has_an_order() {
  int n_different = 0;
  for (int i = 1; i <= 1000; ++i) {
    const double numbers[] = {1.0 / i, i / 7.0, i / 3.0};
    const double plain = norm(numbers, 3, NormOrder::plain), strided = norm(numbers, 3, NormOrder::strided);
    CHECK_EQUAL(plain, std::sqrt((numbers[0] * numbers[0] + numbers[1] * numbers[1]) + numbers[2] * numbers[2]));
    CHECK_EQUAL(strided, std::sqrt((numbers[0] * numbers[0] + numbers[2] * numbers[2]) + numbers[1] * numbers[1]));
    n_different += plain != strided;
    n_different += norm(numbers, 3, NormOrder::fused) != plain;
  }
  CHECK_EQUAL(n_different > 10, true);
  const double sides[] = {3.0, 4.0};
  for (const NormOrder order : {NormOrder::plain, NormOrder::fused, NormOrder::strided}) {
    CHECK_EQUAL(norm(sides, 2, order), 5.0);
  }
}

}  // namespace

void add_numbers_tests(std::map<std::string, std::function<void()>>& tests) {
  tests["numbers: philox gives the known answers"] = philox_gives_the_known_answers;
  tests["numbers: a stream is fixed by seed, index and purpose"] = a_stream_is_fixed_by_seed_index_and_purpose;
  tests["numbers: uniform and normal have their moments"] = uniform_and_normal_have_their_moments;
  tests["numbers: an empty or tiny range is kept"] = an_empty_or_tiny_range_is_kept;
  tests["numbers: sums are pairwise"] = sums_are_pairwise;
  tests["numbers: a norm has an order"] = a_norm_has_an_order;
}

}  // namespace sb3_hrl::test
