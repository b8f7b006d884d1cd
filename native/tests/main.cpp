// Runs every test, or the one planted fault that the first argument names: a fault must end with an error, which shows
// that the checks, and the sanitizer that this was built with, can see one.

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "check.hpp"
#include "sb3_hrl/thread_pool.hpp"

namespace sb3_hrl::test {

using Tests = std::map<std::string, std::function<void()>>;

void add_tests(Tests& tests);  // base_tests.cpp or sim_tests.cpp

namespace {

Tests planted_faults() {
  Tests faults;
  faults["check"] = [] { CHECK_EQUAL(1, 2); };
  faults["address"] = [] {
    std::vector<int> values(4);
    volatile std::size_t beyond = values.size();
    volatile int value = values.data()[beyond];
    static_cast<void>(value);
  };
  faults["undefined"] = [] {
    volatile int value = std::numeric_limits<int>::max();
    value = value + 1;
  };
  faults["thread"] = [] {
    ThreadPool pool(2);
    std::atomic<int> n_begun{0};
    int shared = 0;
    pool.run(2, [&](std::size_t) {
      // Relaxed, for it shall make the two meet without ordering them.
      n_begun.fetch_add(1, std::memory_order_relaxed);
      while (n_begun.load(std::memory_order_relaxed) < 2) {
      }
      for (int i = 0; i < 1000; ++i) ++shared;
    });
  };
  return faults;
}

int run_all(const Tests& tests) {
  int n_failed = 0;
  for (const auto& [name, test] : tests) {
    try {
      test();
      std::printf("ok %s\n", name.c_str());
    } catch (const std::exception& error) {
      std::printf("FAILED %s: %s\n", name.c_str(), error.what());
      ++n_failed;
    }
  }
  std::printf("%zu tests, %d failed\n", tests.size(), n_failed);
  return n_failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace sb3_hrl::test

int main(int argc, char** argv) {
  using namespace sb3_hrl::test;
  Tests tests;
  if (argc > 1) {
    const std::string name = argv[1];
    tests[name] = planted_faults().at(name);
  } else {
    add_tests(tests);
  }
  return run_all(tests);
}
