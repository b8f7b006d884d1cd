#pragma once

#include <functional>
#include <map>
#include <string>

namespace sb3_hrl::test {

// `compiled` gives the bytes of an XML text's model.
void add_muscle_tests(std::map<std::string, std::function<void()>>& tests, const std::function<std::string(const char*)>& compiled);

}  // namespace sb3_hrl::test
