#pragma once

#include <memory>
#include <utility>

#include "sb3_hrl/low_level.hpp"
#include "sb3_hrl/muscle_network.hpp"

namespace sb3_hrl {

// The learned low level.
class NetworkLowLevel : public LowLevel {
 public:
  explicit NetworkLowLevel(std::shared_ptr<const MuscleNetwork> network) : network_(std::move(network)) {}
  void check(const MuscleInterface& interface) const override;
  Workspace make_workspace(const MuscleInterface& interface) const override;
  std::size_t n_together() const override { return MuscleNetwork::kRows; }
  void activate(const Question* questions, std::size_t n) const override;

 private:
  std::shared_ptr<const MuscleNetwork> network_;
};

}  // namespace sb3_hrl
