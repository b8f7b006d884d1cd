#include "sb3_hrl/network_low_level.hpp"

#include <algorithm>
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

void NetworkLowLevel::activate(const Question* questions, std::size_t n) const {
  MuscleNetwork::Row rows[MuscleNetwork::kRows];
  for (std::size_t first = 0; first < n; first += MuscleNetwork::kRows) {
    const std::size_t n_rows = std::min(n - first, MuscleNetwork::kRows);
    std::transform(questions + first, questions + first + n_rows, rows, [](const Question& question) {
      return MuscleNetwork::Row{question.state->packed.data(), question.desired_torque, question.weight,
                                question.workspace->floats.data(), question.activation};
    });
    network_->activate(rows, n_rows);
  }
}

}  // namespace sb3_hrl
