#include "sb3_hrl/task.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>

#include "sb3_hrl/muscle_controller.hpp"

namespace sb3_hrl {
namespace {

template <typename Make>
void make_each(const char* place, const std::vector<TermSpec>& specs, Make&& make) {
  for (std::size_t i = 0; i < specs.size(); ++i) {
    try {
      make(specs[i]);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(std::string(place) + "[" + std::to_string(i) + "]: " + error.what());
    }
  }
}

}  // namespace

Task::Task(const TaskSpec& spec)
    : model_(load_model(spec.model)),
      collisions_(model_.get()),
      frame_skip_(spec.frame_skip),
      max_episode_steps_(spec.max_episode_steps),
      reward_(spec.reward),
      healthy_(spec.healthy),
      muscle_settings_(spec.muscles),
      n_actions_(static_cast<std::size_t>(model_->nu)) {
  make_muscles();
  make_terms(spec);
  check_references(spec);
  for (const ArrayTerm& term : observation_) n_obs_ += term.size;
  n_info_ = lay_out(spec.info, info_);
  n_reset_info_ = lay_out(spec.reset_info, reset_info_);
  collect_needs();
}

void Task::make_muscles() {
  if (!muscle_settings_) return;
  if (model_->opt.integrator == mjINT_RK4) {
    throw std::invalid_argument(
        "integrator: RK4 has no place for a controller between its stages: choose implicitfast, implicit or Euler");
  }
  muscles_ = std::make_unique<const MuscleInterface>(model(), *muscle_settings_);
  n_actions_ = MuscleController::n_actions(*muscles_, *muscle_settings_);
  n_sample_ = MuscleController::n_sample(*muscles_, *muscle_settings_);
}

std::unique_ptr<Controller> Task::make_controller() const {
  if (!muscles_) return nullptr;
  return std::make_unique<MuscleController>(model(), *muscles_, *muscle_settings_, frame_skip_);
}

void Task::make_terms(const TaskSpec& spec) {
  TermContext context{model(), model_->opt.timestep * spec.frame_skip, 0, spec.norm_order, muscles_.get(), n_actions_};
  make_each("observation", spec.observation,
            [&](const TermSpec& term) { observation_.push_back(make_array_term(term, context)); });
  make_each("arrays", spec.arrays, [&](const TermSpec& term) { arrays_.push_back(make_array_term(term, context)); });
  make_each("reset", spec.reset, [&](const TermSpec& term) { reset_.push_back(make_reset_term(term, context)); });
  make_each("values", spec.values, [&](const TermSpec& term) {
    context.n_values = values_.size();
    values_.push_back(make_value_term(term, context));
  });
}

void Task::check_references(const TaskSpec& spec) const {
  const auto check = [](const char* what, std::size_t index, std::size_t size) {
    if (index < size) return;
    throw std::invalid_argument(std::string(what) + ": there is no number " + std::to_string(index) + " among " +
                                std::to_string(size));
  };
  if (frame_skip_ < 1) throw std::invalid_argument("frame_skip: expected at least 1, got " + std::to_string(frame_skip_));
  if (max_episode_steps_ < 0) throw std::invalid_argument("max_episode_steps: expected at least 0");
  check("reward", reward_, values_.size());
  if (healthy_ >= 0) check("healthy", static_cast<std::size_t>(healthy_), values_.size());
  for (const auto* infos : {&spec.info, &spec.reset_info}) {
    for (const InfoSpec& info : *infos) check("info", info.index, info.is_array ? arrays_.size() : values_.size());
  }
}

std::size_t Task::lay_out(const std::vector<InfoSpec>& specs, std::vector<Info>& infos) const {
  std::size_t column = 0;
  for (const InfoSpec& spec : specs) {
    infos.push_back({spec.is_array, spec.index, column});
    column += spec.is_array ? arrays_[spec.index].size : 1;
  }
  return column;
}

// The given values and those that they are made of, in the order of evaluation.
std::vector<std::size_t> Task::with_what_they_need(const std::vector<std::size_t>& values) const {
  std::set<std::size_t> needed(values.begin(), values.end());
  for (std::size_t i = values_.size(); i-- > 0;) {
    if (needed.count(i) > 0) needed.insert(values_[i].needs.values.begin(), values_[i].needs.values.end());
  }
  for (const std::size_t i : needed) {
    if (values_[i].needs.action || !values_[i].needs.before.empty()) {
      throw std::invalid_argument("values[" + std::to_string(i) +
                                  "]: it needs a step, so neither a reset's info nor a rate can use it");
    }
  }
  return {needed.begin(), needed.end()};
}

void Task::collect_needs() {
  std::bitset<kMaxFields> read;
  std::vector<std::size_t> before, at_reset;
  for (const auto* terms : {&observation_, &arrays_}) {
    for (const ArrayTerm& term : *terms) read |= term.needs.fields;
  }
  for (const ValueTerm& term : values_) {
    read |= term.needs.fields;
    before.insert(before.end(), term.needs.before.begin(), term.needs.before.end());
  }
  for (const Info& info : reset_info_) {
    if (!info.is_array) at_reset.push_back(info.index);
  }
  before_values_ = with_what_they_need(before);
  reset_values_ = with_what_they_need(at_reset);
  for (std::size_t i = 0; i < fields().size(); ++i) {
    // Stable PD reads the constraint forces of the step before.
    const bool is_control = muscles_ && std::strcmp(fields()[i].name, "qfrc_constraint") == 0;
    if (!read[i] && !is_control) continue;
    if (!fields()[i].is_in_state) derived_fields_.push_back(&fields()[i]);
    needs_post_step_ = needs_post_step_ || fields()[i].is_post_step;
  }
}

std::vector<std::size_t> Task::array_sizes() const {
  std::vector<std::size_t> sizes;
  for (const ArrayTerm& term : arrays_) sizes.push_back(term.size);
  return sizes;
}

void Task::observe(const Moment& now, double* obs) const {
  for (const ArrayTerm& term : observation_) {
    term.function(now, obs);
    obs += term.size;
  }
}

void Task::evaluate_some(const std::vector<std::size_t>& positions, const Moment& now, double* values) const {
  for (const std::size_t i : positions) values[i] = values_[i].function(now);
}

void Task::evaluate_before(const mjData* data, const Controller* controller, double* before) const {
  evaluate_some(before_values_, {model(), data, nullptr, before, nullptr, controller}, before);
}

void Task::evaluate(const mjData* data, const Controller* controller, const float* action, const double* before,
                    double* values) const {
  const Moment now{model(), data, action, values, before, controller};
  for (std::size_t i = 0; i < values_.size(); ++i) values[i] = values_[i].function(now);
}

void Task::write(const std::vector<Info>& infos, const Moment& now, double* row) const {
  for (const Info& info : infos) {
    if (info.is_array) {
      arrays_[info.index].function(now, row + info.column);
    } else {
      row[info.column] = now.values[info.index];
    }
  }
}

void Task::write_info(const Moment& now, double* info) const { write(info_, now, info); }

void Task::write_reset_info(const mjData* data, const Controller* controller, double* values, double* reset_info) const {
  const Moment now{model(), data, nullptr, values, nullptr, controller};
  evaluate_some(reset_values_, now, values);
  write(reset_info_, now, reset_info);
}

void Task::reset_state(RandomStream& random, mjData* data) const {
  for (const ResetFunction& function : reset_) function(random, model(), data);
}

}  // namespace sb3_hrl
