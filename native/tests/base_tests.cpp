// The tests of the layer that needs nothing but the standard library.

#include <functional>
#include <map>
#include <string>

namespace sb3_hrl::test {

using Tests = std::map<std::string, std::function<void()>>;

void add_cpus_tests(Tests& tests);
void add_dense_tests(Tests& tests);
void add_moments_tests(Tests& tests);
void add_muscle_network_tests(Tests& tests);
void add_numbers_tests(Tests& tests);
void add_thread_pool_tests(Tests& tests);

void add_tests(Tests& tests) {
  add_cpus_tests(tests);
  add_dense_tests(tests);
  add_moments_tests(tests);
  add_muscle_network_tests(tests);
  add_numbers_tests(tests);
  add_thread_pool_tests(tests);
}

}  // namespace sb3_hrl::test
