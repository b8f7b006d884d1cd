#pragma once

#include <functional>
#include <map>
#include <string>

#include "sb3_hrl/task_spec.hpp"

namespace sb3_hrl::test {

// `spec`: a task of one action whose episodes end now and then.
void add_rollout_tests(std::map<std::string, std::function<void()>>& tests, const TaskSpec& spec);

}  // namespace sb3_hrl::test
