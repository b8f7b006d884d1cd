#pragma once

#include <string>

namespace sb3_hrl {

// What the module was compiled with ("header") and what it runs with ("library").
struct BuildInfo {
  std::string compiler;
  int cxx_standard;  // 17 for C++17
  std::string build_type;
  std::string torch_header;
  std::string torch_library;
  std::string mujoco_header;
  std::string mujoco_library;
};

BuildInfo build_info();

}  // namespace sb3_hrl
