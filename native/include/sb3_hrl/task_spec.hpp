#pragma once

// A task as data: numbers only, everything resolved. sb3_hrl.envs.task makes it from YAML.

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sb3_hrl/muscle_settings.hpp"
#include "sb3_hrl/numpy_sums.hpp"

namespace sb3_hrl {

// One term: the name of its function (see known_terms) and the function's arguments. A flag is 0 or 1, a body its id, a
// value its position among the task's values.
struct TermSpec {
  std::string term;
  std::map<std::string, std::vector<double>> arguments;
};

// One entry of an info: a value (one column) or an array (as many columns as it has elements).
struct InfoSpec {
  bool is_array = false;
  std::size_t index = 0;  // into TaskSpec::values or TaskSpec::arrays
};

struct TaskSpec {
  std::string model;                  // a compiled MuJoCo model (the bytes of an MJB file)
  int frame_skip = 1;                 // physics steps of one step
  int max_episode_steps = 0;          // zero for no limit
  std::vector<TermSpec> observation;  // array terms, one after the other
  std::vector<TermSpec> values;       // value terms; each may use those before it
  std::vector<TermSpec> arrays;       // array terms that an info needs
  std::vector<TermSpec> reset;        // reset terms, applied in order to the initial state
  std::size_t reward = 0;             // which value is the reward
  int healthy = -1;                   // which value ends the episode when it is zero; -1 for none
  std::vector<InfoSpec> info;
  std::vector<InfoSpec> reset_info;  // only values that need neither an action nor a state before
  NormOrder norm_order = NormOrder::plain;
  std::optional<MuscleSettings> muscles;  // what drives the body; without it, the action is written to `ctrl`
};

// An argument of a term. Types: number, numbers, range (two numbers), flag, index, axis, body, site, value, values, and
// promotion (a flag that the loader finds out, see `weighted` in terms.cpp).
struct ArgumentInfo {
  std::string name;
  std::string type;
  bool is_required;
};

// A term that tasks can be made of; `kind` is "array", "value" or "reset".
struct TermInfo {
  std::string kind;
  std::string name;
  std::vector<ArgumentInfo> arguments;
};

// All of them, by kind and name.
std::vector<TermInfo> known_terms();

}  // namespace sb3_hrl
