#include "sb3_hrl/terms.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>
#include <stdexcept>

#include "sb3_hrl/numpy_sums.hpp"

namespace sb3_hrl {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
using Range = std::array<double, 2>;

std::string shown(double number) {
  std::ostringstream text;
  text << number;
  return text.str();
}

// The arguments of one term, read by name and type.
class Arguments {
 public:
  Arguments(const TermSpec& spec, const TermInfo& info, const TermContext& context) : context(context), spec_(spec) {
    for (const auto& [name, numbers] : spec.arguments) {
      const auto is_it = [&, &wanted = name](const ArgumentInfo& argument) { return argument.name == wanted; };
      if (std::none_of(info.arguments.begin(), info.arguments.end(), is_it)) {
        throw std::invalid_argument(name + ": the term '" + spec.term + "' has no such argument");
      }
    }
    for (const ArgumentInfo& argument : info.arguments) {
      if (argument.is_required && !has(argument.name)) {
        throw std::invalid_argument(argument.name + ": the term '" + spec.term + "' needs this argument");
      }
    }
  }

  bool has(const std::string& name) const { return spec_.arguments.count(name) > 0; }

  const std::vector<double>& numbers(const std::string& name) const { return spec_.arguments.at(name); }

  double number(const std::string& name) const {
    if (numbers(name).size() != 1) fail(name, "expected one number, got " + std::to_string(numbers(name).size()));
    return numbers(name)[0];
  }

  bool flag(const std::string& name) const { return has(name) && number(name) != 0.0; }

  Range range(const std::string& name, Range otherwise = {-kInfinity, kInfinity}) const {
    if (!has(name)) return otherwise;
    if (numbers(name).size() != 2) fail(name, "expected two numbers, got " + std::to_string(numbers(name).size()));
    return {numbers(name)[0], numbers(name)[1]};
  }

  // A position in an array of that size; a negative one counts from the end.
  int index(const std::string& name, int size) const { return element(name, number(name), size, size - 1); }

  std::vector<int> indices(const std::string& name, int size) const {
    if (numbers(name).empty()) fail(name, "expected at least one");
    std::vector<int> elements;
    for (const double position : numbers(name)) elements.push_back(element(name, position, size, size - 1));
    return elements;
  }

  // The two ends of a slice, as in Python.
  std::pair<int, int> slice(int size) const {
    const int start = has("start") ? element("start", number("start"), size, size) : 0;
    const int stop = has("stop") ? element("stop", number("stop"), size, size) : size;
    if (start > stop) fail("start", "expected at most stop, " + std::to_string(stop) + ", got " + std::to_string(start));
    return {start, stop};
  }

  // An earlier value.
  std::size_t value(const std::string& name, TermNeeds& needs) const {
    const int size = static_cast<int>(context.n_values);
    needs.values.push_back(static_cast<std::size_t>(element(name, number(name), size, size - 1)));
    return needs.values.back();
  }

  std::vector<std::size_t> values(const std::string& name, TermNeeds& needs) const {
    const std::vector<int> positions = indices(name, static_cast<int>(context.n_values));
    needs.values.assign(positions.begin(), positions.end());
    return needs.values;
  }

  [[noreturn]] void fail(const std::string& name, const std::string& what) const {
    throw std::invalid_argument(name + ": " + what);
  }

  const TermContext context;

 private:
  int element(const std::string& name, double position, int size, int last) const {
    const double from_start = position < 0 ? position + size : position;
    if (from_start != std::floor(from_start) || !(from_start >= 0 && from_start <= last)) {
      fail(name, "expected a whole number from " + std::to_string(-size) + " to " + std::to_string(last) + ", got " +
                     shown(position));
    }
    return static_cast<int>(from_start);
  }

  const TermSpec& spec_;
};

TermNeeds reading(const std::string& field_name) {
  const auto is_it = [&](const Field& field) { return field.name == field_name; };
  const auto found = std::find_if(fields().begin(), fields().end(), is_it);
  TermNeeds needs;
  needs.fields.set(static_cast<std::size_t>(found - fields().begin()));
  return needs;
}

// numpy.clip: NaN stays NaN.
double clip(double number, Range range) {
  number = number < range[0] ? range[0] : number;
  return number > range[1] ? range[1] : number;
}

// --- array terms --------------------------------------------------------------------------------------------------------

// Rows start … stop of a field, times a number, clipped.
ArrayTerm field_rows(const Field& field, const Arguments& arguments) {
  const auto [start, stop] = arguments.slice(field.n_rows(arguments.context.model));
  const Range range = arguments.range("clip");
  const std::size_t offset = static_cast<std::size_t>(start * field.n_columns);
  const std::size_t size = static_cast<std::size_t>((stop - start) * field.n_columns);
  const auto data = field.data;
  const double scale = arguments.has("scale") ? arguments.number("scale") : 1.0;
  if (!arguments.has("clip") && !arguments.has("scale")) {
    return {[=](const Moment& now, double* out) { std::copy_n(data(now.data) + offset, size, out); }, size,
            reading(field.name)};
  }
  return {[=](const Moment& now, double* out) {
            const double* from = data(now.data) + offset;
            for (std::size_t i = 0; i < size; ++i) out[i] = clip(scale * from[i], range);
          },
          size, reading(field.name)};
}

template <double (*function)(double)>
ArrayTerm qpos_function(const Arguments& arguments) {
  const auto [start, stop] = arguments.slice(static_cast<int>(arguments.context.model->nq));
  const int first = start;
  const std::size_t size = static_cast<std::size_t>(stop - start);
  return {[=](const Moment& now, double* out) {
            for (std::size_t i = 0; i < size; ++i) out[i] = function(now.data->qpos[first + static_cast<int>(i)]);
          },
          size, reading("qpos")};
}

int body_of(const Arguments& arguments, const std::string& name) {
  return arguments.index(name, static_cast<int>(arguments.context.model->nbody));
}

// The position of one body.
ArrayTerm body_xpos(const Arguments& arguments) {
  const int body = body_of(arguments, "body");
  return {[=](const Moment& now, double* out) { std::copy_n(now.data->xpos + 3 * body, 3, out); }, 3, reading("xpos")};
}

// The first `stop` coordinates of one body's position minus another's.
ArrayTerm body_offset(const Arguments& arguments) {
  const int body = body_of(arguments, "body"), from = body_of(arguments, "from");
  const int n = arguments.has("stop") ? arguments.index("stop", 4) : 3;
  return {[=](const Moment& now, double* out) {
            for (int i = 0; i < n; ++i) out[i] = now.data->xpos[3 * body + i] - now.data->xpos[3 * from + i];
          },
          static_cast<std::size_t>(n), reading("xpos")};
}

// Sine and cosine of a clock that runs with the simulated time.
ArrayTerm clock(const Arguments& arguments) {
  const double period = arguments.number("period");
  if (!(period > 0)) arguments.fail("period", "expected a number > 0, got " + shown(period));
  const double per_second = 6.283185307179586 / period;
  return {[=](const Moment& now, double* out) {
            const double phase = per_second * now.data->time;
            out[0] = std::sin(phase);
            out[1] = std::cos(phase);
          },
          2,
          {}};
}

int memory_of(const Arguments& arguments, const std::string& name) {
  return arguments.index(name, static_cast<int>(arguments.context.model->nuserdata));
}

// One number of the task's memory, which is MuJoCo's userdata and so part of a state.
ArrayTerm memory_row(const Arguments& arguments) {
  const int index = memory_of(arguments, "of");
  return {[=](const Moment& now, double* out) { *out = now.data->userdata[index]; }, 1, {}};
}

void check_muscles(const Arguments& arguments) {
  if (arguments.context.muscles == nullptr) arguments.fail("term", "only a task with muscles has it");
}

// What the muscles can do at each coordinate, as they were last read: before the step's last substep, or at the reset.
template <std::vector<double> MuscleState::* torques>
ArrayTerm muscle_torques(const Arguments& arguments) {
  check_muscles(arguments);
  const std::size_t size = arguments.context.muscles->n_coords();
  const double scale = arguments.has("scale") ? arguments.number("scale") : 1.0;
  return {[=](const Moment& now, double* out) {
            const std::vector<double>& numbers = now.controller->muscle_state()->*torques;
            for (std::size_t i = 0; i < size; ++i) out[i] = scale * numbers[i];
          },
          size,
          {}};
}

// --- value terms: what the simulation is like ---------------------------------------------------------------------------

ValueTerm qpos(const Arguments& arguments) {
  const int index = arguments.index("index", static_cast<int>(arguments.context.model->nq));
  return {[=](const Moment& now) { return now.data->qpos[index]; }, reading("qpos")};
}

ValueTerm qvel(const Arguments& arguments) {
  const int index = arguments.index("index", static_cast<int>(arguments.context.model->nv));
  return {[=](const Moment& now) { return now.data->qvel[index]; }, reading("qvel")};
}

// How far a coordinate is from where the model puts it.
ValueTerm qpos_change(const Arguments& arguments) {
  const int index = arguments.index("index", static_cast<int>(arguments.context.model->nq));
  return {[=](const Moment& now) { return now.data->qpos[index] - now.model->qpos0[index]; }, reading("qpos")};
}

// The length of a slice of qpos.
ValueTerm qpos_norm(const Arguments& arguments) {
  const auto [start, stop] = arguments.slice(static_cast<int>(arguments.context.model->nq));
  const int first = start;
  const std::size_t size = static_cast<std::size_t>(stop - start);
  const NormOrder order = arguments.context.norm_order;
  return {[=](const Moment& now) { return norm(now.data->qpos + first, size, order); }, reading("qpos")};
}

ValueTerm xpos(const Arguments& arguments) {
  const int element = 3 * body_of(arguments, "body") + arguments.index("axis", 3);
  return {[=](const Moment& now) { return now.data->xpos[element]; }, reading("xpos")};
}

ValueTerm site_xpos(const Arguments& arguments) {
  const int site = arguments.index("site", static_cast<int>(arguments.context.model->nsite));
  const int element = 3 * site + arguments.index("axis", 3);
  return {[=](const Moment& now) { return now.data->site_xpos[element]; }, reading("site_xpos")};
}

// The centre of mass: numpy.einsum("b,bj->j", body_mass, xipos) / body_mass.sum().
ValueTerm mass_center(const Arguments& arguments) {
  const int axis = arguments.index("axis", 3);
  const mjModel* model = arguments.context.model;
  const double total =
      pairwise_sum([=](std::size_t body) { return model->body_mass[body]; }, 0, static_cast<std::size_t>(model->nbody));
  return {[=](const Moment& now) {
            double sum = 0.0;
            for (int body = 0; body < now.model->nbody; ++body) {
              sum += now.model->body_mass[body] * now.data->xipos[3 * body + axis];
            }
            return sum / total;
          },
          reading("xipos")};
}

// The distance between two bodies.
ValueTerm body_distance(const Arguments& arguments) {
  const int body = body_of(arguments, "body"), from = body_of(arguments, "from");
  const NormOrder order = arguments.context.norm_order;
  return {[=](const Moment& now) {
            double offset[3];
            for (int i = 0; i < 3; ++i) offset[i] = now.data->xpos[3 * body + i] - now.data->xpos[3 * from + i];
            return norm(offset, 3, order);
          },
          reading("xpos")};
}

// The sum of the squares of the action, in the action's single precision.
ValueTerm action_squares(const Arguments& arguments) {
  const std::size_t size = arguments.context.n_actions;
  TermNeeds needs;
  needs.action = true;
  return {[=](const Moment& now) {
            const auto square = [&](std::size_t i) { return now.action[i] * now.action[i]; };
            return static_cast<double>(pairwise_sum(square, 0, size));
          },
          needs};
}

// The sum of the squares of a whole field, clipped.
ValueTerm field_squares(const std::string& field_name, const Arguments& arguments) {
  const TermNeeds needs = reading(field_name);
  std::size_t position = 0;
  while (!needs.fields[position]) ++position;
  const Field& field = fields()[position];
  const std::size_t size = static_cast<std::size_t>(field.n_rows(arguments.context.model) * field.n_columns);
  const auto data = field.data;
  const Range range = arguments.range("clip");
  return {[=](const Moment& now) {
            const auto square = [&, numbers = data(now.data)](std::size_t i) {
              const double number = clip(numbers[i], range);
              return number * number;
            };
            return pairwise_sum(square, 0, size);
          },
          needs};
}

ValueTerm qvel_squares(const Arguments& arguments) { return field_squares("qvel", arguments); }
ValueTerm ctrl_squares(const Arguments& arguments) { return field_squares("ctrl", arguments); }
ValueTerm cfrc_ext_squares(const Arguments& arguments) { return field_squares("cfrc_ext", arguments); }

// 1 when every number of qpos and qvel is finite, else 0.
ValueTerm state_is_finite(const Arguments&) {
  TermNeeds needs = reading("qpos");
  needs.fields |= reading("qvel").fields;
  return {[](const Moment& now) {
            const auto is_finite = [](double number) { return std::isfinite(number); };
            return std::all_of(now.data->qpos, now.data->qpos + now.model->nq, is_finite) &&
                           std::all_of(now.data->qvel, now.data->qvel + now.model->nv, is_finite)
                       ? 1.0
                       : 0.0;
          },
          needs};
}

// 1 when every number of (qpos, qvel)[start:] lies strictly within the range, else 0.
ValueTerm state_within(const Arguments& arguments) {
  const mjModel* model = arguments.context.model;
  const int start = arguments.has("start") ? arguments.index("start", static_cast<int>(model->nq + model->nv)) : 0;
  const int qpos_start = std::min(start, static_cast<int>(model->nq));
  const int qvel_start = std::max(start - static_cast<int>(model->nq), 0);
  const Range range = arguments.range("range");
  TermNeeds needs = reading("qpos");
  needs.fields |= reading("qvel").fields;
  return {[=](const Moment& now) {
            const auto is_inside = [&](double number) { return range[0] < number && number < range[1]; };
            return std::all_of(now.data->qpos + qpos_start, now.data->qpos + now.model->nq, is_inside) &&
                           std::all_of(now.data->qvel + qvel_start, now.data->qvel + now.model->nv, is_inside)
                       ? 1.0
                       : 0.0;
          },
          needs};
}

// How far the hinge and slide joints are outside their ranges, added up.
ValueTerm limit_violation(const Arguments&) {
  return {[](const Moment& now) {
            double total = 0.0;
            for (int joint = 0; joint < now.model->njnt; ++joint) {
              const int type = now.model->jnt_type[joint];
              if (!now.model->jnt_limited[joint] || (type != mjJNT_HINGE && type != mjJNT_SLIDE)) continue;
              const double position = now.data->qpos[now.model->jnt_qposadr[joint]];
              const double* range = now.model->jnt_range + 2 * joint;
              total += std::max(0.0, std::max(range[0] - position, position - range[1]));
            }
            return total;
          },
          reading("qpos")};
}

ValueTerm memory(const Arguments& arguments) {
  const int index = memory_of(arguments, "of");
  return {[=](const Moment& now) { return now.data->userdata[index]; }, {}};
}

// What the muscles did in this step.
template <double ControlSummary::* number>
ValueTerm muscle_summary(const Arguments& arguments) {
  check_muscles(arguments);
  TermNeeds needs;
  needs.action = true;
  return {[](const Moment& now) { return now.controller->summary()->*number; }, needs};
}

// --- value terms: made of earlier values --------------------------------------------------------------------------------

ValueTerm constant(const Arguments& arguments) {
  const double number = arguments.number("number");
  return {[=](const Moment&) { return number; }, {}};
}

// The change of a value in this step, per second of simulated time.
ValueTerm rate(const Arguments& arguments) {
  TermNeeds needs;
  const std::size_t of = arguments.value("of", needs);
  needs.before = needs.values;
  const double dt = arguments.context.dt;
  return {[=](const Moment& now) { return (now.values[of] - now.before[of]) / dt; }, needs};
}

ValueTerm per_timestep(const Arguments& arguments) {
  TermNeeds needs;
  const std::size_t of = arguments.value("of", needs);
  return {[=](const Moment& now) { return now.values[of] / now.model->opt.timestep; }, needs};
}

// weight * value. In single precision if NumPy would do so: it multiplies a float32 by a Python number in single precision
// since version 2, and in double precision before.
ValueTerm weighted(const Arguments& arguments) {
  TermNeeds needs;
  const std::size_t of = arguments.value("of", needs);
  const double weight = arguments.number("weight");
  if (arguments.flag("is_single")) {
    const float single = static_cast<float>(weight);
    return {[=](const Moment& now) { return static_cast<double>(single * static_cast<float>(now.values[of])); }, needs};
  }
  return {[=](const Moment& now) { return weight * now.values[of]; }, needs};
}

// The negative of `weighted`, which may be clipped before.
ValueTerm cost(const Arguments& arguments) {
  const Range range = arguments.range("clip");
  ValueTerm term = weighted(arguments);
  term.function = [range, product = std::move(term.function)](const Moment& now) { return -clip(product(now), range); };
  return term;
}

// -(weight_0 * (value_0 - target_0)**2 + …): the squares by pow, as NumPy's scalars have them; x * x has another last bit.
ValueTerm squares_cost(const Arguments& arguments) {
  TermNeeds needs;
  const std::vector<std::size_t> of = arguments.values("of", needs);
  const std::vector<double> weights = arguments.numbers("weights");
  const std::vector<double> targets = arguments.has("targets") ? arguments.numbers("targets") : std::vector<double>(of.size());
  if (weights.size() != of.size()) arguments.fail("weights", "expected as many numbers as there are values");
  if (targets.size() != of.size()) arguments.fail("targets", "expected as many numbers as there are values");
  return {[=](const Moment& now) {
            const auto square = [&](std::size_t i) {
              volatile double two = 2.0;  // else the compiler makes x * x of it
              return weights[i] * std::pow(now.values[of[i]] - targets[i], two);
            };
            double sum = square(0);
            for (std::size_t i = 1; i < of.size(); ++i) sum += square(i);
            return -sum;
          },
          needs};
}

// Left to right.
ValueTerm sum(const Arguments& arguments) {
  TermNeeds needs;
  const std::vector<std::size_t> of = arguments.values("of", needs);
  return {[=](const Moment& now) {
            double total = now.values[of[0]];
            for (std::size_t i = 1; i < of.size(); ++i) total += now.values[of[i]];
            return total;
          },
          needs};
}

ValueTerm difference(const Arguments& arguments) {
  TermNeeds needs, others;
  const std::size_t of = arguments.value("of", needs), minus = arguments.value("minus", others);
  needs.values.push_back(minus);
  return {[=](const Moment& now) { return now.values[of] - now.values[minus]; }, needs};
}

// weight * exp(-sharpness * value**2): the weight at zero, and less on both sides.
ValueTerm bell(const Arguments& arguments) {
  TermNeeds needs;
  const std::size_t of = arguments.value("of", needs);
  const double sharpness = arguments.number("sharpness"), weight = arguments.number("weight");
  return {[=](const Moment& now) { return weight * std::exp(-sharpness * (now.values[of] * now.values[of])); }, needs};
}

// A running mean that forgets within so many seconds. It is kept in the task's memory, and begins with what a reset wrote.
ValueTerm average(const Arguments& arguments) {
  TermNeeds needs;
  const std::size_t of = arguments.value("of", needs);
  const int index = memory_of(arguments, "memory");
  const double seconds = arguments.number("seconds"), dt = arguments.context.dt;
  if (!(seconds >= dt)) arguments.fail("seconds", "expected at least a step, " + shown(dt) + ", got " + shown(seconds));
  needs.action = true;  // once a step, never at a reset
  return {[=](const Moment& now) {
            double& mean = now.data->userdata[index];
            return mean += dt / seconds * (now.values[of] - mean);
          },
          needs};
}

// For how many steps in a row a value has not been zero.
ValueTerm streak(const Arguments& arguments) {
  TermNeeds needs;
  const std::size_t of = arguments.value("of", needs);
  const int index = memory_of(arguments, "memory");
  needs.action = true;  // once a step, never at a reset
  return {[=](const Moment& now) {
            double& n_steps = now.data->userdata[index];
            return n_steps = now.values[of] != 0.0 ? n_steps + 1.0 : 0.0;
          },
          needs};
}

// Which of the values is the first that is zero, from 1; 0 when none is.
ValueTerm first_zero(const Arguments& arguments) {
  TermNeeds needs;
  const std::vector<std::size_t> of = arguments.values("of", needs);
  return {[=](const Moment& now) {
            const auto is_zero = [&](std::size_t position) { return now.values[position] == 0.0; };
            const auto found = std::find_if(of.begin(), of.end(), is_zero);
            return found == of.end() ? 0.0 : static_cast<double>(found - of.begin() + 1);
          },
          needs};
}

// 1 when low < value < high (low <= value <= high when closed), else 0.
ValueTerm within(const Arguments& arguments) {
  TermNeeds needs;
  const std::size_t of = arguments.value("of", needs);
  const auto [low, high] = arguments.range("range");
  if (arguments.flag("closed")) {
    return {[=, low = low, high = high](const Moment& now) {
              return low <= now.values[of] && now.values[of] <= high ? 1.0 : 0.0;
            },
            needs};
  }
  return {[=, low = low, high = high](const Moment& now) {
            return low < now.values[of] && now.values[of] < high ? 1.0 : 0.0;
          },
          needs};
}

// 1 when value > limit, else 0.
ValueTerm above(const Arguments& arguments) {
  TermNeeds needs;
  const std::size_t of = arguments.value("of", needs);
  const double limit = arguments.number("limit");
  return {[=](const Moment& now) { return now.values[of] > limit ? 1.0 : 0.0; }, needs};
}

// 1 when none of the values is zero, else 0.
ValueTerm all(const Arguments& arguments) {
  TermNeeds needs;
  const std::vector<std::size_t> of = arguments.values("of", needs);
  return {[=](const Moment& now) {
            const auto holds = [&](std::size_t position) { return now.values[position] != 0.0; };
            return std::all_of(of.begin(), of.end(), holds) ? 1.0 : 0.0;
          },
          needs};
}

// --- reset terms --------------------------------------------------------------------------------------------------------

// Add noise from [-scale, scale) to a slice.
template <bool is_qpos>
ResetFunction uniform_noise(const Arguments& arguments) {
  const double scale = arguments.number("scale");
  const mjModel* model = arguments.context.model;
  const auto [start, stop] = arguments.slice(static_cast<int>(is_qpos ? model->nq : model->nv));
  return [scale, start = start, stop = stop](RandomStream& random, const mjModel*, mjData* data) {
    for (int i = start; i < stop; ++i) (is_qpos ? data->qpos : data->qvel)[i] += random.uniform(-scale, scale);
  };
}

// Add normal noise of that standard deviation to every number of qvel.
ResetFunction qvel_normal(const Arguments& arguments) {
  const double scale = arguments.number("scale");
  return [=](RandomStream& random, const mjModel* model, mjData* data) {
    for (int i = 0; i < model->nv; ++i) data->qvel[i] += scale * random.normal();
  };
}

// Set two neighbours in qpos to a point of a rectangle whose distance from the origin lies strictly within `radius`.
ResetFunction qpos_pair(const Arguments& arguments) {
  const int n = static_cast<int>(arguments.context.model->nq), start = arguments.index("start", n);
  if (start == n - 1) arguments.fail("start", "expected a number that has a neighbour, got the last one");
  const Range first = arguments.range("first"), second = arguments.range("second"), radius = arguments.range("radius");
  return [=](RandomStream& random, const mjModel*, mjData* data) {
    for (int n_tries = 0; n_tries < 10000; ++n_tries) {
      const double point[2] = {random.uniform(first[0], first[1]), random.uniform(second[0], second[1])};
      const double distance = norm(point, 2, NormOrder::plain);
      if (distance <= radius[0] || distance >= radius[1]) continue;
      std::copy_n(point, 2, data->qpos + start);
      return;
    }
    throw std::runtime_error("qpos_pair: no point of the rectangle was found to lie within the radius");
  };
}

template <bool is_qpos>
ResetFunction set_slice(const Arguments& arguments) {
  const mjModel* model = arguments.context.model;
  const auto [start, stop] = arguments.slice(static_cast<int>(is_qpos ? model->nq : model->nv));
  const double number = arguments.number("number");
  return [number, start = start, stop = stop](RandomStream&, const mjModel*, mjData* data) {
    std::fill((is_qpos ? data->qpos : data->qvel) + start, (is_qpos ? data->qpos : data->qvel) + stop, number);
  };
}

// Begin at one of the model's keyframes, each as likely as the others: positions, velocities and time.
ResetFunction keyframe(const Arguments& arguments) {
  const std::vector<int> keys = arguments.indices("of", static_cast<int>(arguments.context.model->nkey));
  return [=](RandomStream& random, const mjModel* model, mjData* data) {
    const std::size_t drawn = static_cast<std::size_t>(random.uniform(0.0, static_cast<double>(keys.size())));
    const int key = keys[drawn];
    std::copy_n(model->key_qpos + key * model->nq, model->nq, data->qpos);
    std::copy_n(model->key_qvel + key * model->nv, model->nv, data->qvel);
    data->time = model->key_time[key];
  };
}

// Put a mocap body to where another body is in a random pose, so that it can be reached. Each joint that has a range is drawn
// from that part of it.
ResetFunction mocap_to_pose(const Arguments& arguments) {
  const mjModel* model = arguments.context.model;
  const int mocap = model->body_mocapid[body_of(arguments, "body")], to = body_of(arguments, "to");
  if (mocap < 0) arguments.fail("body", "expected a mocap body");
  const Range part = arguments.range("part", {0.0, 1.0});
  return [=](RandomStream& random, const mjModel* model, mjData* data) {
    const std::vector<double> qpos(data->qpos, data->qpos + model->nq);
    for (int joint = 0; joint < model->njnt; ++joint) {
      const int type = model->jnt_type[joint];
      if (!model->jnt_limited[joint] || (type != mjJNT_HINGE && type != mjJNT_SLIDE)) continue;
      const double low = model->jnt_range[2 * joint], high = model->jnt_range[2 * joint + 1];
      data->qpos[model->jnt_qposadr[joint]] = low + (high - low) * random.uniform(part[0], part[1]);
    }
    mj_kinematics(model, data);
    std::copy_n(data->xpos + 3 * to, 3, data->mocap_pos + 3 * mocap);
    std::copy(qpos.begin(), qpos.end(), data->qpos);
  };
}

// Write one random number to some of the task's memory.
ResetFunction memory_uniform(const Arguments& arguments) {
  const std::vector<int> indices = arguments.indices("of", static_cast<int>(arguments.context.model->nuserdata));
  const Range range = arguments.range("range");
  return [=](RandomStream& random, const mjModel*, mjData* data) {
    const double number = random.uniform(range[0], range[1]);
    for (const int index : indices) data->userdata[index] = number;
  };
}

// --- tables -------------------------------------------------------------------------------------------------------------

template <typename Make>
struct Row {
  const char* name;
  std::vector<ArgumentInfo> arguments;
  Make make;
};

const std::vector<ArgumentInfo> kSlice = {{"start", "index", false}, {"stop", "index", false}};
const std::vector<ArgumentInfo> kTwoBodies = {{"body", "body", true}, {"from", "body", true}};

const std::vector<Row<ArrayTerm (*)(const Arguments&)>>& array_rows() {
  static const std::vector<Row<ArrayTerm (*)(const Arguments&)>> rows = {
      {"body_offset", {kTwoBodies[0], kTwoBodies[1], kSlice[1]}, body_offset},
      {"body_xpos", {{"body", "body", true}}, body_xpos},
      {"clock", {{"period", "number", true}}, clock},
      {"memory", {{"of", "memory", true}}, memory_row},
      {"passive_torque", {{"scale", "number", false}}, muscle_torques<&MuscleState::passive_torque>},
      {"qpos_cos", kSlice, qpos_function<std::cos>},
      {"qpos_sin", kSlice, qpos_function<std::sin>},
      {"torque_high", {{"scale", "number", false}}, muscle_torques<&MuscleState::torque_high>},
      {"torque_low", {{"scale", "number", false}}, muscle_torques<&MuscleState::torque_low>},
  };
  return rows;
}

const std::vector<Row<ValueTerm (*)(const Arguments&)>>& value_rows() {
  static const std::vector<Row<ValueTerm (*)(const Arguments&)>> rows = {
      {"above", {{"of", "value", true}, {"limit", "number", true}}, above},
      {"action_squares", {}, action_squares},
      {"all", {{"of", "values", true}}, all},
      {"average", {{"of", "value", true}, {"seconds", "number", true}, {"memory", "memory", true}}, average},
      {"bell", {{"of", "value", true}, {"sharpness", "number", true}, {"weight", "number", true}}, bell},
      {"body_distance", kTwoBodies, body_distance},
      {"cfrc_ext_squares", {{"clip", "range", false}}, cfrc_ext_squares},
      {"co_contraction", {}, muscle_summary<&ControlSummary::co_contraction>},
      {"constant", {{"number", "number", true}}, constant},
      {"cost",
       {{"of", "value", true}, {"weight", "number", true}, {"clip", "range", false}, {"is_single", "promotion", false}},
       cost},
      {"ctrl_squares", {{"clip", "range", false}}, ctrl_squares},
      {"difference", {{"of", "value", true}, {"minus", "value", true}}, difference},
      {"effort", {}, muscle_summary<&ControlSummary::effort>},
      {"first_zero", {{"of", "values", true}}, first_zero},
      {"infeasible", {}, muscle_summary<&ControlSummary::infeasible>},
      {"limit_violation", {}, limit_violation},
      {"mass_center", {{"axis", "axis", true}}, mass_center},
      {"mean_activation", {}, muscle_summary<&ControlSummary::mean_activation>},
      {"memory", {{"of", "memory", true}}, memory},
      {"per_timestep", {{"of", "value", true}}, per_timestep},
      {"qpos", {{"index", "index", true}}, qpos},
      {"qpos_change", {{"index", "index", true}}, qpos_change},
      {"qpos_norm", kSlice, qpos_norm},
      {"qvel", {{"index", "index", true}}, qvel},
      {"qvel_squares", {{"clip", "range", false}}, qvel_squares},
      {"rate", {{"of", "value", true}}, rate},
      {"saturation", {}, muscle_summary<&ControlSummary::saturation>},
      {"site_xpos", {{"site", "site", true}, {"axis", "axis", true}}, site_xpos},
      {"squares_cost",
       {{"of", "values", true}, {"weights", "numbers", true}, {"targets", "numbers", false}},
       squares_cost},
      {"state_is_finite", {}, state_is_finite},
      {"state_within", {{"range", "range", true}, {"start", "index", false}}, state_within},
      {"streak", {{"of", "value", true}, {"memory", "memory", true}}, streak},
      {"sum", {{"of", "values", true}}, sum},
      {"torque_error", {}, muscle_summary<&ControlSummary::torque_error>},
      {"weighted", {{"of", "value", true}, {"weight", "number", true}, {"is_single", "promotion", false}}, weighted},
      {"within", {{"of", "value", true}, {"range", "range", true}, {"closed", "flag", false}}, within},
      {"xpos", {{"body", "body", true}, {"axis", "axis", true}}, xpos},
  };
  return rows;
}

const std::vector<Row<ResetFunction (*)(const Arguments&)>>& reset_rows() {
  static const std::vector<Row<ResetFunction (*)(const Arguments&)>> rows = {
      {"keyframe", {{"of", "keyframes", true}}, keyframe},
      {"memory_uniform", {{"of", "memories", true}, {"range", "range", true}}, memory_uniform},
      {"mocap_to_pose", {{"body", "body", true}, {"to", "body", true}, {"part", "range", false}}, mocap_to_pose},
      {"qpos_pair",
       {{"start", "index", true}, {"first", "range", true}, {"second", "range", true}, {"radius", "range", false}},
       qpos_pair},
      {"qpos_set", {kSlice[0], kSlice[1], {"number", "number", true}}, set_slice<true>},
      {"qpos_uniform", {{"scale", "number", true}, kSlice[0], kSlice[1]}, uniform_noise<true>},
      {"qvel_normal", {{"scale", "number", true}}, qvel_normal},
      {"qvel_set", {kSlice[0], kSlice[1], {"number", "number", true}}, set_slice<false>},
      {"qvel_uniform", {{"scale", "number", true}, kSlice[0], kSlice[1]}, uniform_noise<false>},
  };
  return rows;
}

const std::vector<ArgumentInfo> kFieldArguments = {
    kSlice[0], kSlice[1], {"clip", "range", false}, {"scale", "number", false}};

template <typename Rows>
auto* find_row(const Rows& rows, const std::string& name) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const auto& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

[[noreturn]] void unknown_term(const char* kind, const std::string& name) {
  throw std::invalid_argument("term: there is no " + std::string(kind) + " term '" + name + "'");
}

template <typename Rows>
auto make(const char* kind, const Rows& rows, const TermSpec& spec, const TermContext& context) {
  const auto* row = find_row(rows, spec.term);
  if (row == nullptr) unknown_term(kind, spec.term);
  return row->make(Arguments(spec, {kind, row->name, row->arguments}, context));
}

}  // namespace

#define SB3_HRL_FIELD(name, rows, n_columns, is_in_state, is_post_step)                              \
  Field {                                                                                            \
    #name, n_columns, [](const mjModel* model) { return static_cast<int>(model->rows); },            \
        [](const mjData* data) -> double* { return data->name; }, is_in_state, is_post_step          \
  }

const std::vector<Field>& fields() {
  static const std::vector<Field> all_fields = {
      SB3_HRL_FIELD(act, na, 1, true, false),
      SB3_HRL_FIELD(actuator_force, nout, 1, false, false),
      SB3_HRL_FIELD(cacc, nbody, 6, false, true),
      SB3_HRL_FIELD(cfrc_ext, nbody, 6, false, true),
      SB3_HRL_FIELD(cfrc_int, nbody, 6, false, true),
      SB3_HRL_FIELD(cinert, nbody, 10, false, false),
      SB3_HRL_FIELD(ctrl, nu, 1, true, false),
      SB3_HRL_FIELD(cvel, nbody, 6, false, false),
      SB3_HRL_FIELD(mocap_pos, nmocap, 3, true, false),
      SB3_HRL_FIELD(qacc, nv, 1, false, false),
      SB3_HRL_FIELD(qfrc_actuator, nv, 1, false, false),
      SB3_HRL_FIELD(qfrc_constraint, nv, 1, false, false),
      SB3_HRL_FIELD(qpos, nq, 1, true, false),
      SB3_HRL_FIELD(qvel, nv, 1, true, false),
      SB3_HRL_FIELD(sensordata, nsensordata, 1, false, false),
      SB3_HRL_FIELD(site_xpos, nsite, 3, false, false),
      SB3_HRL_FIELD(subtree_com, nbody, 3, false, false),
      SB3_HRL_FIELD(ten_length, ntendon, 1, false, false),
      SB3_HRL_FIELD(ten_velocity, ntendon, 1, false, false),
      SB3_HRL_FIELD(xipos, nbody, 3, false, false),
      SB3_HRL_FIELD(xpos, nbody, 3, false, false),
      SB3_HRL_FIELD(xquat, nbody, 4, false, false),
  };
  return all_fields;
}

std::vector<TermInfo> known_terms() {
  std::vector<TermInfo> known;
  for (const Field& field : fields()) known.push_back({"array", field.name, kFieldArguments});
  for (const auto& row : array_rows()) known.push_back({"array", row.name, row.arguments});
  for (const auto& row : value_rows()) known.push_back({"value", row.name, row.arguments});
  for (const auto& row : reset_rows()) known.push_back({"reset", row.name, row.arguments});
  return known;
}

ArrayTerm make_array_term(const TermSpec& spec, const TermContext& context) {
  const auto is_it = [&](const Field& field) { return field.name == spec.term; };
  const auto field = std::find_if(fields().begin(), fields().end(), is_it);
  if (field == fields().end()) return make("array", array_rows(), spec, context);
  return field_rows(*field, Arguments(spec, {"array", spec.term, kFieldArguments}, context));
}

ValueTerm make_value_term(const TermSpec& spec, const TermContext& context) {
  return make("value", value_rows(), spec, context);
}

ResetFunction make_reset_term(const TermSpec& spec, const TermContext& context) {
  return make("reset", reset_rows(), spec, context);
}

}  // namespace sb3_hrl
