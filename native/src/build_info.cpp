#include "sb3_hrl/build_info.hpp"

#include <mujoco/mujoco.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/version.h>

#include <cstdint>

namespace sb3_hrl {
namespace {

// MuJoCo writes 4.0.1 as 4000001.
std::string mujoco_version(int number) {
  return std::to_string(number / 1000000) + "." + std::to_string(number / 1000 % 1000) + "." +
         std::to_string(number % 1000);
}

// Torch writes 2.13.0 into the three highest of eight bytes.
std::string torch_version(std::uint64_t number) {
  return std::to_string(number >> 56 & 0xff) + "." + std::to_string(number >> 48 & 0xff) + "." +
         std::to_string(number >> 40 & 0xff);
}

}  // namespace

BuildInfo build_info() {
  return {SB3_HRL_COMPILER,
          static_cast<int>(__cplusplus / 100 % 100),
          SB3_HRL_BUILD_TYPE,
          torch_version(TORCH_ABI_VERSION),
          torch_version(aoti_torch_abi_version()),
          mujoco_version(mjVERSION_HEADER),
          mujoco_version(mj_version())};
}

}  // namespace sb3_hrl
