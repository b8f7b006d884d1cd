#pragma once

#include <functional>
#include <map>
#include <string>

namespace sb3_hrl::test {

// `compiled` turns an XML text into the bytes of a model.
void add_collision_list_tests(std::map<std::string, std::function<void()>>& tests, std::string (*compiled)(const char*));

}  // namespace sb3_hrl::test
