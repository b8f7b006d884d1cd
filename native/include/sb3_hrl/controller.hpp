#pragma once

#include <mujoco/mujoco.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace sb3_hrl {

class LowLevel;
struct Question;
struct MuscleState;

// What happened in one step of the task, averaged over its substeps (and over muscles or coordinates).
struct ControlSummary {
  double effort = 0.0;           // mean squared activation; under the actuation `torque` the mean squared action
  double mean_activation = 0.0;  // mean activation
  double torque_error = 0.0;     // RMS of the produced minus the desired active torque, Nm
  double saturation = 0.0;       // share of activations above 0.99
  double co_contraction = 0.0;   // mean of 2 min(up, down) / (up + down), the torques of opposing muscles
  double infeasible = 0.0;       // share of substeps whose desired torque is out of the muscles' reach
};

// What turns an action into control inside a worker, at every physics substep: muscles, for example. Without one, the action
// is written to `ctrl` once and mj_step does the rest.
class Controller {
 public:
  virtual ~Controller() = default;
  // The environment's random numbers begin anew, from the stream (seed, index).
  virtual void seed(std::uint64_t, std::uint32_t) {}
  // Throws std::invalid_argument where it cannot be used.
  virtual void set_low_level(std::shared_ptr<const LowLevel>) { throw std::invalid_argument("this task has no muscles"); }
  // An episode begins; `data` is its first state, after mj_forward.
  virtual void reset(const mjModel*, mjData*) {}
  // A decision begins: its action is held for one task step or more. Throws if no step can be taken.
  virtual void begin_decision() {}
  // An action begins, `action` is [n_actions]; called once a task step, before its first substep.
  virtual void begin_step(const mjModel* model, mjData* data, const float* action) = 0;
  // After mj_step1, which computes all that depends on position and velocity. What it asks its low level, or null; the caller
  // has that answered, perhaps together with other environments' questions.
  virtual const Question* begin_substep(const mjModel* model, mjData* data, int substep) = 0;
  // Then, before mj_step2.
  virtual void end_substep(const mjModel*, mjData*, int) {}
  // Null without one.
  virtual const LowLevel* low_level() const { return nullptr; }

  // What terms see: of the last step, and of the last substep (or the reset). Null without muscles.
  virtual const ControlSummary* summary() const { return nullptr; }
  virtual const MuscleState* muscle_state() const { return nullptr; }
  // [n_sample] of the last decision, or null.
  virtual const float* sample() const { return nullptr; }

  // All that the future depends on, as bytes of a fixed number; `set_state` gets as many.
  virtual std::string get_state() const { return {}; }
  virtual void set_state(const std::string&) {}
};

}  // namespace sb3_hrl
