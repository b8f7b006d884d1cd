#include "sb3_hrl/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "sb3_hrl/errors.hpp"
#include "sb3_hrl/low_level.hpp"

namespace sb3_hrl {
namespace {

bool is_finite(const double* numbers, std::size_t n) {
  return std::all_of(numbers, numbers + n, [](double number) { return std::isfinite(number); });
}

// Appends to, or takes from, a string of bytes.
class Writer {
 public:
  void operator()(const void* data, std::size_t n_bytes) { bytes.append(static_cast<const char*>(data), n_bytes); }
  std::string bytes;
};

class Reader {
 public:
  explicit Reader(const std::string& bytes) : next_(bytes.data()) {}
  void operator()(void* data, std::size_t n_bytes) {
    std::memcpy(data, next_, n_bytes);
    next_ += n_bytes;
  }

 private:
  const char* next_;
};

struct RandomState {
  std::uint64_t seed, index, n_drawn;
};

std::size_t n_bytes(const Field& field, const mjModel* model) {
  return sizeof(double) * static_cast<std::size_t>(field.n_rows(model) * field.n_columns);
}

}  // namespace

Simulation::Simulation(std::shared_ptr<const Task> task, RandomStream random)
    : task_(std::move(task)),
      data_(make_data(task_->model())),
      controller_(task_->make_controller()),
      random_(random),
      before_(task_->n_values()),
      values_(task_->n_values()),
      last_obs_(task_->n_obs()) {
  seed(random);
}

void Simulation::seed(RandomStream random) {
  random_ = random;
  if (controller_) controller_->seed(random.seed(), random.index());
}

void Simulation::set_low_level(std::shared_ptr<const LowLevel> low_level) {
  if (!controller_) throw std::invalid_argument("this task has no muscles");
  controller_->set_low_level(std::move(low_level));
}

std::size_t Simulation::n_together() const {
  const LowLevel* low_level = controller_ ? controller_->low_level() : nullptr;
  return low_level != nullptr ? low_level->n_together() : 1;
}

void Simulation::begin_episode() {
  counters_.n_episode_steps = 0;
  counters_.episode_return = 0.0;
  counters_.is_ready = 0;
}

void Simulation::reset(double* obs, double* reset_info) {
  begin_episode();
  const mjModel* model = task_->model();
  guarded([&] { mj_resetData(model, data_.get()); });
  task_->reset_state(random_, data_.get());
  guarded([&] { mj_forward(model, data_.get()); });
  if (controller_) controller_->reset(model, data_.get());
  observe(obs);
  if (!is_finite(obs, task_->n_obs())) throw NativeError("the reset gave an observation that is not finite");
  task_->write_reset_info(data_.get(), controller_.get(), values_.data(), reset_info);
  std::copy_n(obs, task_->n_obs(), last_obs_.data());
  counters_.is_ready = 1;
}

void Simulation::step(const float* action, int n_hold, double gamma, const StepRow& row) {
  begin_decision(action, n_hold, gamma, row);
  do {
    if (const Question* question = begin_substep()) question->low_level->activate(question, 1);
  } while (!end_substep());
}

void Simulation::begin_decision(const float* action, int n_hold, double gamma, const StepRow& row) {
  if (!counters_.is_ready) throw NativeError("it must be reset before it can step");
  if (controller_) controller_->begin_decision();
  counters_.is_ready = 0;  // until this step has ended well
  decision_ = {action, n_hold, gamma, row};
  begin_task_step();
}

void Simulation::begin_task_step() {
  task_->evaluate_before(data_.get(), controller_.get(), before_.data());
  if (controller_) {
    controller_->begin_step(task_->model(), data_.get(), decision_.action);
  } else {
    std::copy_n(decision_.action, task_->n_actions(), data_->ctrl);
  }
  decision_.substep = 0;
}

const Question* Simulation::begin_substep() {
  if (!controller_) return nullptr;
  guarded([&] { mj_step1(task_->model(), data_.get()); });
  return controller_->begin_substep(task_->model(), data_.get(), decision_.substep);
}

bool Simulation::end_substep() {
  const mjModel* model = task_->model();
  mjData* data = data_.get();
  if (controller_) {
    controller_->end_substep(model, data, decision_.substep);
    guarded([&] { mj_step2(model, data); });
  } else {
    guarded([&] { mj_step(model, data); });
  }
  // MuJoCo has reset the data by itself then, and would go on as if nothing had been.
  if (has_broken_down()) return end_task_step(false);
  if (++decision_.substep < task_->frame_skip()) return false;
  if (task_->needs_post_step()) guarded([&] { mj_rnePostConstraint(model, data); });
  return end_task_step(is_finite(data->qpos, n_qpos()) && is_finite(data->qvel, n_qvel()));
}

// Returns whether the decision is over, too.
bool Simulation::end_task_step(bool is_sound) {
  const StepRow& row = decision_.row;
  const Outcome outcome = conclude(is_sound);
  if (decision_.n_held == 0 && row.sample != nullptr && task_->n_sample() > 0) {
    std::copy_n(controller_->sample(), task_->n_sample(), row.sample);
    // Nobody is to learn from it.
    if (outcome.is_unstable) std::fill_n(row.sample, task_->n_sample(), std::numeric_limits<float>::quiet_NaN());
  }
  if (decision_.n_hold == 0) {
    decision_.reward = outcome.reward;
  } else {
    decision_.reward += std::pow(decision_.gamma, decision_.n_held) * outcome.reward;
  }
  if (++decision_.n_held < decision_.n_hold && !outcome.is_done()) {
    begin_task_step();
    return false;
  }
  *row.reward = decision_.reward;
  *row.terminated = outcome.is_terminated;
  *row.truncated = outcome.is_truncated;
  *row.unstable = outcome.is_unstable;
  *row.n_held = decision_.n_held;
  counters_.is_ready = 1;
  if (!outcome.is_done()) return true;
  *row.episode_return = counters_.episode_return;
  *row.episode_length = static_cast<std::int64_t>(counters_.n_episode_steps);
  std::copy_n(last_obs_.data(), task_->n_obs(), row.terminal_obs);
  reset(row.obs, row.reset_info);
  return true;
}

// What one step of the task has come to, after its physics.
Simulation::Outcome Simulation::conclude(bool is_sound) {
  Outcome outcome;
  outcome.is_unstable = !is_sound || !evaluate(decision_.action, decision_.row);
  ++counters_.n_episode_steps;
  ++counters_.n_total_steps;
  if (outcome.is_unstable) {
    break_down(decision_.row);
    outcome.is_terminated = true;
    return outcome;
  }
  outcome.reward = task_->reward(values_.data());
  outcome.is_terminated = task_->is_terminated(values_.data());
  const auto limit = static_cast<std::uint64_t>(task_->max_episode_steps());
  outcome.is_truncated = limit > 0 && counters_.n_episode_steps >= limit;
  counters_.episode_return += outcome.reward;
  return outcome;
}

bool Simulation::has_broken_down() const {
  return data_->warning[mjWARN_BADQPOS].number > 0 || data_->warning[mjWARN_BADQVEL].number > 0 ||
         data_->warning[mjWARN_BADQACC].number > 0;
}

// Returns whether the results are finite.
bool Simulation::evaluate(const float* action, const StepRow& row) {
  const Moment now{task_->model(), data_.get(), action, values_.data(), before_.data(), controller_.get()};
  task_->evaluate(data_.get(), controller_.get(), action, before_.data(), values_.data());
  task_->observe(now, row.obs);
  if (!is_finite(row.obs, task_->n_obs()) || !std::isfinite(task_->reward(values_.data()))) return false;
  task_->write_info(now, row.info);
  std::copy_n(row.obs, task_->n_obs(), last_obs_.data());
  return true;
}

void Simulation::break_down(const StepRow& row) {
  Instability& instability = counters_.instability;
  instability = {instability.n_events + 1, random_.seed(), counters_.n_episode_steps, counters_.n_total_steps};
  std::fill_n(row.info, task_->n_info(), std::numeric_limits<double>::quiet_NaN());
  std::copy_n(last_obs_.data(), task_->n_obs(), row.obs);
}

std::string Simulation::get_state() const {
  const mjModel* model = task_->model();
  std::vector<double> integration(n_physics());
  get_physics(integration.data());
  const RandomState random{random_.seed(), random_.index(), random_.n_drawn()};
  Writer write;
  write(&random, sizeof(random));
  write(&counters_, sizeof(counters_));
  write(integration.data(), integration.size() * sizeof(double));
  for (const Field* field : task_->derived_fields()) write(field->data(data_.get()), n_bytes(*field, model));
  write(last_obs_.data(), last_obs_.size() * sizeof(double));
  return controller_ ? write.bytes + controller_->get_state() : write.bytes;
}

void Simulation::set_state(const std::string& state) {
  const std::size_t expected = get_state().size();
  if (state.size() != expected) {
    throw std::invalid_argument("expected a state of " + std::to_string(expected) + " bytes, got " +
                                std::to_string(state.size()));
  }
  const mjModel* model = task_->model();
  std::vector<double> integration(n_physics());
  RandomState random;
  Reader read(state);
  read(&random, sizeof(random));
  read(&counters_, sizeof(counters_));
  read(integration.data(), integration.size() * sizeof(double));
  random_ = RandomStream(random.seed, static_cast<std::uint32_t>(random.index), RandomPurpose::reset, random.n_drawn);
  guarded([&] {
    mj_resetData(model, data_.get());
    mj_setState(model, data_.get(), integration.data(), mjSTATE_INTEGRATION);
  });
  for (const Field* field : task_->derived_fields()) read(field->data(data_.get()), n_bytes(*field, model));
  read(last_obs_.data(), last_obs_.size() * sizeof(double));
  if (controller_) controller_->set_state(state.substr(state.size() - controller_->get_state().size()));
}

void Simulation::get_qpos_qvel(double* qpos, double* qvel) const {
  std::copy_n(data_->qpos, n_qpos(), qpos);
  std::copy_n(data_->qvel, n_qvel(), qvel);
}

std::size_t Simulation::n_physics() const {
  return static_cast<std::size_t>(mj_stateSize(task_->model(), mjSTATE_INTEGRATION));
}

void Simulation::get_physics(double* state) const {
  mj_getState(task_->model(), data_.get(), state, mjSTATE_INTEGRATION);
}

void Simulation::set_qpos_qvel(const double* qpos, const double* qvel, double* obs) {
  begin_episode();
  guarded([&] { mj_resetData(task_->model(), data_.get()); });
  std::copy_n(qpos, n_qpos(), data_->qpos);
  std::copy_n(qvel, n_qvel(), data_->qvel);
  guarded([&] { mj_forward(task_->model(), data_.get()); });
  if (controller_) controller_->reset(task_->model(), data_.get());
  observe(obs);
  if (is_finite(obs, task_->n_obs())) std::copy_n(obs, task_->n_obs(), last_obs_.data());
  counters_.is_ready = 1;
}

void Simulation::observe(double* obs) const {
  task_->observe({task_->model(), data_.get(), nullptr, nullptr, nullptr, controller_.get()}, obs);
}

}  // namespace sb3_hrl
