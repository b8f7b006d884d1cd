#pragma once

#include <mujoco/mujoco.h>

#include <cstddef>
#include <vector>

#include "sb3_hrl/muscle_interface.hpp"

namespace sb3_hrl {

// Stable PD control (Tan, Liu and Turk 2011) of the driven coordinates, reduced to the independent ones:
//   p = -stiffness (q + h v - target), d = -damping v
//   acceleration = (T' M T + h damping)^-1 (T' (passive - bias + constraint) + p + d)
//   torque = p + d - h damping acceleration
// sb3_hrl.muscle.StablePd is the readable twin. It has room for one environment.
class StablePd {
 public:
  StablePd(const mjModel* model, const MuscleInterface& interface, const MuscleSettings& settings);

  // After mj_step1, with qfrc_constraint still of the step before. `target` and `torque` are [D]; `slopes` is [nv], read only
  // where joints are coupled. Throws NativeError if the inertia is not positive definite.
  void torque(const mjModel* model, const mjData* data, const double* slopes, const double* target, double* torque);

 private:
  void reduce(const double* slopes, std::size_t nv);

  const MuscleInterface* interface_;
  std::vector<double> stiffness_, damping_;   // [D]
  std::vector<std::size_t> rows_;             // [D], places of the coordinates among the independent degrees of freedom
  std::vector<double> full_, forces_;         // [nv, nv], [nv]
  std::vector<double> matrix_, force_;        // [R, R], [R]: independent degrees of freedom
  std::vector<double> pd_, acceleration_;     // [D], [R]
};

}  // namespace sb3_hrl
