#include "sb3_hrl/muscle_controller.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "sb3_hrl/errors.hpp"

namespace sb3_hrl {
namespace {

constexpr const char* kNoMuscles =
    "this environment is driven by a model's muscles and has none: load the model with HPPO and let it act here, or call "
    "set_muscles";
constexpr double kSaturated = 0.99;
constexpr double kNegligible = 1e-6;  // Nm
constexpr double kCascadeLimit = 10.0;

struct ControllerHead {
  std::uint64_t seed, index, n_drawn;
  ControlSummary summary;
};

double clamp_number(double number, double low, double high) { return std::min(std::max(number, low), high); }

}  // namespace

MuscleController::MuscleController(const mjModel* model, const MuscleInterface& interface, const MuscleSettings& settings,
                                   int frame_skip)
    : interface_(&interface),
      settings_(&settings),
      frame_skip_(frame_skip),
      pd_(model, interface, settings),
      random_(0, 0, RandomPurpose::substep),
      state_(interface.make_state()),
      action_(n_actions(interface, settings)),
      target_(interface.n_coords()),
      desired_torque_(interface.n_coords()),
      wanted_(interface.n_muscles()),
      slopes_(static_cast<std::size_t>(model->nv), 1.0),
      arms_(interface.n_coords()),
      sample_(n_sample(interface, settings)) {}

std::size_t MuscleController::n_actions(const MuscleInterface& interface, const MuscleSettings& settings) {
  if (settings.actuation == Actuation::muscle_e2e) return interface.n_muscles();
  return interface.n_coords() + (settings.has_cascade ? 1 : 0);
}

std::size_t MuscleController::n_sample(const MuscleInterface& interface, const MuscleSettings& settings) {
  return settings.actuation == Actuation::muscle_hrl ? interface.n_packed() + interface.n_coords() : 0;
}

void MuscleController::seed(std::uint64_t seed, std::uint32_t index) {
  random_ = RandomStream(seed, index, RandomPurpose::substep);
}

void MuscleController::set_low_level(std::shared_ptr<const LowLevel> low_level) {
  if (low_level) {
    low_level->check(*interface_);
    workspace_ = low_level->make_workspace(*interface_);
  }
  low_level_ = std::move(low_level);
}

void MuscleController::reset(const mjModel* model, mjData* data) {
  read(model, data);
  summary_ = {};
}

void MuscleController::begin_decision() {
  if (!is_hierarchical()) return;
  if (!low_level_) throw NativeError(kNoMuscles);
  is_sampling_ = true;
  std::fill(sample_.begin(), sample_.end(), 0.0f);
}

void MuscleController::begin_step(const mjModel*, mjData*, const float* action) {
  std::copy_n(action, action_.size(), action_.begin());
  sums_ = {};
  if (!is_hierarchical()) return;
  const std::size_t n = interface_->n_coords();
  for (std::size_t d = 0; d < n; ++d) {
    target_[d] = clamp_number(settings_->nominal[d] + settings_->scale[d] * action_[d], settings_->low[d], settings_->high[d]);
  }
  weight_ = settings_->has_cascade ? 1.0 / (1.0 + std::exp(-clamp_number(action_[n], -kCascadeLimit, kCascadeLimit))) : 1.0;
  // Every task step draws, as in the twin, which does not know of decisions; those after the first leave the sample alone.
  const int drawn = std::min(static_cast<int>(random_.uniform() * frame_skip_), frame_skip_ - 1);
  drawn_ = is_sampling_ ? drawn : -1;
  is_sampling_ = false;
}

void MuscleController::read(const mjModel* model, const mjData* data) {
  if (interface_->has_couplings()) interface_->slopes(model, data, slopes_.data());
  interface_->read(model, data, slopes_.data(), arms_.data(), state_);
}

const Question* MuscleController::begin_substep(const mjModel* model, mjData* data, int substep) {
  read(model, data);
  if (is_hierarchical()) return ask(model, data, substep);
  if (settings_->actuation == Actuation::muscle_e2e) {
    for (std::size_t i = 0; i < wanted_.size(); ++i) wanted_[i] = clamp_number(action_[i], 0.0, 1.0);
  }
  return nullptr;
}

void MuscleController::end_substep(const mjModel* model, mjData* data, int substep) {
  const std::vector<int>& dofs = interface_->dofs();
  if (settings_->actuation == Actuation::torque) {
    relax(data);
    for (std::size_t d = 0; d < dofs.size(); ++d) data->qfrc_applied[dofs[d]] = settings_->torque_limit[d] * action_[d];
  } else if (is_hierarchical() && low_level_->is_torque()) {
    relax(data);
    for (std::size_t d = 0; d < dofs.size(); ++d) data->qfrc_applied[dofs[d]] = desired_torque_[d];
  } else {
    if (is_hierarchical()) {
      for (const int dof : dofs) data->qfrc_applied[dof] = 0.0;
    }
    activate(model, data);
  }
  count(data);
  if (substep < frame_skip_ - 1) return;
  const double n = frame_skip_;
  summary_ = {sums_.effort / n,     sums_.mean_activation / n, std::sqrt(sums_.torque_error / n),
              sums_.saturation / n, sums_.co_contraction / n,  sums_.infeasible / n};
}

// The hierarchy: from joint targets to torques, and the question for activations.
const Question* MuscleController::ask(const mjModel* model, mjData* data, int substep) {
  pd_.torque(model, data, slopes_.data(), target_.data(), desired_torque_.data());
  for (std::size_t d = 0; d < desired_torque_.size(); ++d) desired_torque_[d] -= state_.passive_torque[d];
  if (substep == drawn_) {
    const auto to_float = [](double number) { return static_cast<float>(number); };
    const auto rest = std::transform(state_.packed.begin(), state_.packed.end(), sample_.begin(), to_float);
    std::transform(desired_torque_.begin(), desired_torque_.end(), rest, to_float);
  }
  if (low_level_->is_torque()) return nullptr;
  question_ = {low_level_.get(), &state_, desired_torque_.data(), weight_, &workspace_, wanted_.data()};
  return &question_;
}

void MuscleController::relax(mjData* data) const {
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    data->act[interface_->activation(i)] = 0.0;
    data->ctrl[interface_->control(i)] = 0.0;
  }
}

void MuscleController::activate(const mjModel* model, mjData* data) const {
  const double h = model->opt.timestep;
  for (std::size_t i = 0; i < wanted_.size(); ++i) {
    double& now = data->act[interface_->activation(i)];
    double& control = data->ctrl[interface_->control(i)];
    if (settings_->activation == Activation::inverted) {
      // MuJoCo's time constants depend on the activation, and on whether it grows (Millard et al. 2013).
      const double factor = 0.5 + 1.5 * clamp_number(now, 0.0, 1.0);
      const double seconds = wanted_[i] > now ? interface_->rise_seconds(i) * factor : interface_->fall_seconds(i) / factor;
      control = clamp_number(now + seconds * (wanted_[i] - now) / h, 0.0, 1.0);
      continue;
    }
    if (settings_->activation == Activation::direct) now = wanted_[i];
    control = wanted_[i];
  }
}

// Add this substep's share to the sums.
void MuscleController::count(const mjData* data) {
  const std::size_t n_coords = interface_->n_coords(), n_muscles = interface_->n_muscles();
  double squares = 0.0, total = 0.0, n_saturated = 0.0;
  for (std::size_t i = 0; i < n_muscles; ++i) {
    const double a = data->act[interface_->activation(i)];
    squares += a * a;
    total += a;
    n_saturated += a > kSaturated ? 1.0 : 0.0;
  }
  double effort = squares / static_cast<double>(n_muscles);
  if (settings_->actuation == Actuation::torque) {
    squares = 0.0;
    for (const double a : action_) squares += a * a;
    effort = squares / static_cast<double>(n_coords);
  }
  double errors = 0.0, opposing = 0.0;
  bool is_infeasible = false;
  for (std::size_t d = 0; d < n_coords; ++d) {
    double up = 0.0, down = 0.0;
    for (std::size_t i = 0; i < n_muscles; ++i) {
      const double torque = state_.torque_per_activation[d * n_muscles + i], a = data->act[interface_->activation(i)];
      up += std::max(torque * a, 0.0);
      down += std::max(-torque * a, 0.0);
    }
    if (up + down > kNegligible) opposing += 2.0 * std::min(up, down) / (up + down);
    if (!is_hierarchical()) continue;
    const double desired = desired_torque_[d];
    const double error = low_level_->is_torque() ? 0.0 : (up - down) - desired;
    errors += error * error;
    is_infeasible = is_infeasible || !(state_.torque_low[d] <= desired && desired <= state_.torque_high[d]);
  }
  sums_.effort += effort;
  sums_.mean_activation += total / static_cast<double>(n_muscles);
  sums_.torque_error += errors / static_cast<double>(n_coords);
  sums_.saturation += n_saturated / static_cast<double>(n_muscles);
  sums_.co_contraction += opposing / static_cast<double>(n_coords);
  sums_.infeasible += is_infeasible ? 1.0 : 0.0;
}

std::string MuscleController::get_state() const {
  const ControllerHead head{random_.seed(), random_.index(), random_.n_drawn(), summary_};
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  for (const auto* numbers : {&state_.torque_per_activation, &state_.packed, &state_.passive_torque, &state_.torque_low,
                              &state_.torque_high}) {
    bytes.append(reinterpret_cast<const char*>(numbers->data()), numbers->size() * sizeof(double));
  }
  return bytes;
}

void MuscleController::set_state(const std::string& state) {
  ControllerHead head;
  const char* next = state.data();
  std::memcpy(&head, next, sizeof(head));
  next += sizeof(head);
  random_ = RandomStream(head.seed, static_cast<std::uint32_t>(head.index), RandomPurpose::substep, head.n_drawn);
  summary_ = head.summary;
  for (auto* numbers : {&state_.torque_per_activation, &state_.packed, &state_.passive_torque, &state_.torque_low,
                        &state_.torque_high}) {
    std::memcpy(numbers->data(), next, numbers->size() * sizeof(double));
    next += numbers->size() * sizeof(double);
  }
}

}  // namespace sb3_hrl
