#pragma once

#include <cstddef>
#include <vector>

namespace sb3_hrl {

// What an action is: joint targets, activations, or joint torques.
enum class Actuation { muscle_hrl = 0, muscle_e2e = 1, torque = 2 };
// How an activation reaches the muscle: written itself, through the muscle's dynamics, or through their inverse.
enum class Activation { direct = 0, excitation = 1, inverted = 2 };

// How a task drives its muscles, with everything resolved; sb3_hrl.muscle.MuscleSettings makes it. D driven coordinates, each
// a hinge or slide joint; M muscles, the actuators with a muscle's gain.
struct MuscleSettings {
  Actuation actuation = Actuation::muscle_hrl;
  Activation activation = Activation::direct;
  std::vector<int> dofs;          // [D], degree of freedom of each coordinate
  std::vector<int> pattern;       // [P], the entries of [D, M] that are not structurally zero, muscle by muscle
  std::vector<double> low, high;  // [D], ranges of the joint targets
  std::vector<double> nominal, scale, stiffness, damping, torque_limit;  // [D]
  bool has_cascade = false;       // one more action, for the weight of a cascade's last level
};

}  // namespace sb3_hrl
