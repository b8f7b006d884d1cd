#include "sb3_hrl/network_low_level.hpp"

#include <stdexcept>
#include <string>

namespace sb3_hrl {

void NetworkLowLevel::check(const MuscleInterface& interface) const {
  const auto describe = [](const auto& sizes) {
    return std::to_string(sizes.n_muscles()) + " muscles, " + std::to_string(sizes.n_coords()) + " coordinates and " +
           std::to_string(sizes.n_packed()) + " torques per activation";
  };
  const std::string expected = describe(interface), got = describe(*network_);
  if (got != expected) throw std::invalid_argument("muscle network: expected one for " + expected + ", got one for " + got);
}

Workspace NetworkLowLevel::make_workspace(const MuscleInterface&) const {
  return {{}, std::vector<float>(network_->n_workspace())};
}

void NetworkLowLevel::activate(const MuscleState& state, const double* desired_torque, double weight, Workspace& workspace,
                               double* activation) const {
  network_->activate(state.packed.data(), desired_torque, weight, workspace.floats.data(), activation);
}

}  // namespace sb3_hrl
