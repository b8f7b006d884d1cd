#pragma once

#include <array>
#include <cstdint>

namespace sb3_hrl {

// One block of Philox4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): four random words that
// depend on the counter and the key alone.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

// What a stream of random numbers is for: streams of the same seed and index never meet.
enum class RandomPurpose : std::uint32_t { reset = 0, action = 1, substep = 2 };

// A stream of random numbers that is fixed by seed, index and purpose, whichever thread draws from it. Every draw takes one
// block, so `n_drawn` is the whole state.
class RandomStream {
 public:
  RandomStream() = default;
  RandomStream(std::uint64_t seed, std::uint32_t index, RandomPurpose purpose = RandomPurpose::reset,
               std::uint64_t n_drawn = 0);

  std::uint64_t seed() const { return seed_; }
  std::uint32_t index() const { return index_; }
  std::uint64_t n_drawn() const { return n_drawn_; }

  // Uniform in [0, 1): the upper 53 of the block's first 64 bits, times 2**-53.
  double uniform();
  // Uniform in [low, high): low + (high - low) * u; what rounds up to `high` becomes the number below it.
  double uniform(double low, double high);
  // Standard normal, by Box and Muller: sqrt(-2 log(1 - u)) * cos(2 pi v), with u and v from the block's two halves.
  double normal();

 private:
  std::array<double, 2> next();

  std::uint64_t seed_ = 0;
  std::uint64_t n_drawn_ = 0;
  std::uint32_t index_ = 0;
  RandomPurpose purpose_ = RandomPurpose::reset;
};

}  // namespace sb3_hrl
