#pragma once

// The functions that tasks are made of.

#include <mujoco/mujoco.h>

#include <array>
#include <bitset>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "sb3_hrl/controller.hpp"
#include "sb3_hrl/muscle_interface.hpp"
#include "sb3_hrl/philox.hpp"
#include "sb3_hrl/task_spec.hpp"

namespace sb3_hrl {

static_assert(sizeof(mjtNum) == sizeof(double), "MuJoCo must be built in double precision");

// An array of mjData that a term can read, as a matrix [rows, n_columns].
struct Field {
  const char* name;
  int n_columns;
  int (*n_rows)(const mjModel*);
  double* (*data)(const mjData*);
  bool is_in_state;   // part of mjSTATE_INTEGRATION
  bool is_post_step;  // computed by mj_rnePostConstraint only
};

constexpr std::size_t kMaxFields = 64;
const std::vector<Field>& fields();

// What a term's function sees.
struct Moment {
  const mjModel* model;
  const mjData* data;
  const float* action;   // [n_actions]; null at a reset
  const double* values;  // [n_values]: the task's values so far
  const double* before;  // [n_values]: those of them that TermNeeds::before asks for, before the first substep
  const Controller* controller = nullptr;  // null without muscles
};

using ArrayFunction = std::function<void(const Moment&, double*)>;
using ValueFunction = std::function<double(const Moment&)>;
using ResetFunction = std::function<void(RandomStream&, double* qpos, double* qvel)>;

// What a term needs, beside its own numbers.
struct TermNeeds {
  std::bitset<kMaxFields> fields;
  std::vector<std::size_t> values;  // earlier values
  std::vector<std::size_t> before;  // earlier values, as they were before the first substep
  bool action = false;
};

struct ArrayTerm {
  ArrayFunction function;
  std::size_t size = 0;
  TermNeeds needs;
};
struct ValueTerm {
  ValueFunction function;
  TermNeeds needs;
};

// What a term may know when it is made.
struct TermContext {
  const mjModel* model;
  double dt;             // simulated seconds of one step
  std::size_t n_values;  // how many values stand before it
  NormOrder norm_order;
  const MuscleInterface* muscles = nullptr;  // null without muscles
};

// Make a term. Throws std::invalid_argument "argument: what is wrong" (or only what is wrong), for an unknown name or
// argument, a missing one, or one out of range.
ArrayTerm make_array_term(const TermSpec& spec, const TermContext& context);
ValueTerm make_value_term(const TermSpec& spec, const TermContext& context);
ResetFunction make_reset_term(const TermSpec& spec, const TermContext& context);

}  // namespace sb3_hrl
