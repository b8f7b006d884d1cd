#include "sb3_hrl/philox.hpp"

#include <cmath>

namespace sb3_hrl {
namespace {

constexpr double kTwoPi = 6.283185307179586;

std::uint32_t low_word(std::uint64_t number) { return static_cast<std::uint32_t>(number); }
std::uint32_t high_word(std::uint64_t number) { return static_cast<std::uint32_t>(number >> 32); }

double unit_double(std::uint32_t low, std::uint32_t high) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(high) << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t first = 0xD2511F53ull * counter[0];
    const std::uint64_t second = 0xCD9E8D57ull * counter[2];
    counter = {high_word(second) ^ counter[1] ^ key[0], low_word(second), high_word(first) ^ counter[3] ^ key[1],
               low_word(first)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

RandomStream::RandomStream(std::uint64_t seed, std::uint32_t index, RandomPurpose purpose, std::uint64_t n_drawn)
    : seed_(seed), n_drawn_(n_drawn), index_(index), purpose_(purpose) {}

std::array<double, 2> RandomStream::next() {
  const std::array<std::uint32_t, 4> block =
      philox({low_word(n_drawn_), high_word(n_drawn_), index_, static_cast<std::uint32_t>(purpose_)},
             {low_word(seed_), high_word(seed_)});
  ++n_drawn_;
  return {unit_double(block[0], block[1]), unit_double(block[2], block[3])};
}

double RandomStream::uniform() { return next()[0]; }

double RandomStream::uniform(double low, double high) {
  const double value = low + (high - low) * uniform();
  return value < high || low >= high ? value : std::nextafter(high, low);
}

double RandomStream::normal() {
  const std::array<double, 2> units = next();
  return std::sqrt(-2.0 * std::log(1.0 - units[0])) * std::cos(kTwoPi * units[1]);
}

}  // namespace sb3_hrl
