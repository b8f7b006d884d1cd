#pragma once

#include <mujoco/mujoco.h>

namespace sb3_hrl {

// What turns an action into control inside a worker, at every physics substep: muscles, for example. Without one, the action
// is written to `ctrl` once and mj_step does the rest.
class Controller {
 public:
  virtual ~Controller() = default;
  // An action begins, `action` is [nu]; called once a task step, before its first substep.
  virtual void begin_step(const mjModel* model, mjData* data, const float* action) = 0;
  // Between mj_step1, which computes all that depends on position and velocity, and mj_step2.
  virtual void before_substep(const mjModel* model, mjData* data, int substep) = 0;
};

}  // namespace sb3_hrl
