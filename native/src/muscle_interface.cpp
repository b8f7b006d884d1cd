#include "sb3_hrl/muscle_interface.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace sb3_hrl {

MuscleInterface::MuscleInterface(const mjModel* model, const MuscleSettings& settings) : dofs_(settings.dofs) {
  const auto fail = [](const std::string& what) { throw std::invalid_argument("muscles: " + what); };
  find_muscles(model);
  if (muscles_.empty()) fail("the model has no actuator with the gain of a muscle");
  find_couplings(model);

  const auto n_coords = dofs_.size();
  if (n_coords == 0) fail("dofs: expected at least one");
  for (const int dof : dofs_) {
    if (dof < 0 || dof >= model->nv) fail("dofs: there is no degree of freedom " + std::to_string(dof));
    const int joint = model->dof_jntid[dof];
    if (model->jnt_type[joint] != mjJNT_HINGE && model->jnt_type[joint] != mjJNT_SLIDE) {
      fail("dofs: " + std::to_string(dof) + " belongs to neither a hinge nor a slide joint");
    }
    positions_.push_back(model->jnt_qposadr[joint]);
  }
  for (const auto* numbers : {&settings.low, &settings.high, &settings.nominal, &settings.scale, &settings.stiffness,
                              &settings.damping, &settings.torque_limit}) {
    if (numbers->size() != n_coords) {
      fail("expected " + std::to_string(n_coords) + " numbers, one for each coordinate, got " + std::to_string(numbers->size()));
    }
  }

  // Follow each degree of freedom to the independent one.
  const auto nv = static_cast<std::size_t>(model->nv);
  std::vector<int> followed(nv);
  for (std::size_t dof = 0; dof < nv; ++dof) followed[dof] = static_cast<int>(dof);
  for (const Coupling& coupling : couplings_) {
    followed[static_cast<std::size_t>(coupling.dof)] =
        coupling.other_dof >= 0 ? followed[static_cast<std::size_t>(coupling.other_dof)] : -1;
  }
  std::vector<int> place(nv, -1);
  for (std::size_t dof = 0; dof < nv; ++dof) {
    if (followed[dof] == static_cast<int>(dof)) place[dof] = static_cast<int>(n_independent_++);
  }
  places_.assign(nv, -1);
  coordinates_.assign(nv, -1);
  for (std::size_t dof = 0; dof < nv; ++dof) {
    if (followed[dof] < 0) continue;
    places_[dof] = place[static_cast<std::size_t>(followed[dof])];
    const auto found = std::find(dofs_.begin(), dofs_.end(), followed[dof]);
    if (found != dofs_.end()) coordinates_[dof] = static_cast<int>(found - dofs_.begin());
  }
  for (const int dof : dofs_) {
    if (followed[static_cast<std::size_t>(dof)] != dof) fail("dofs: " + std::to_string(dof) + " follows another");
  }
  set_pattern(settings.pattern);
}

void MuscleInterface::find_muscles(const mjModel* model) {
  for (int i = 0; i < static_cast<int>(model->nactuator); ++i) {
    if (model->actuator_gaintype[i] != mjGAIN_MUSCLE) continue;
    if (model->actuator_dyntype[i] != mjDYN_MUSCLE || model->actuator_actadr[i] < 0) {
      throw std::invalid_argument("muscles: actuator " + std::to_string(i) + " has the gain of a muscle without its dynamics");
    }
    muscles_.push_back({i, model->actuator_outadr[i], model->actuator_ctrladr[i], model->actuator_actadr[i],
                        model->actuator_biastype[i] == mjBIAS_MUSCLE, model->actuator_dynprm[mjNDYN * i],
                        model->actuator_dynprm[mjNDYN * i + 1],
                        {}});
  }
}

void MuscleInterface::find_couplings(const mjModel* model) {
  if (model->opt.disableflags & mjDSBL_EQUALITY) return;
  std::vector<Coupling> waiting;
  for (int i = 0; i < static_cast<int>(model->neq); ++i) {
    if (model->eq_type[i] != mjEQ_JOINT || !model->eq_active0[i]) continue;
    const int other = model->eq_obj2id[i];
    Coupling coupling{model->jnt_dofadr[model->eq_obj1id[i]],
                      other >= 0 ? model->jnt_dofadr[other] : -1,
                      other >= 0 ? model->jnt_qposadr[other] : -1,
                      {}};
    std::copy_n(model->eq_data + mjNEQDATA * i, coupling.coefficients.size(), coupling.coefficients.begin());
    waiting.push_back(coupling);
  }
  while (!waiting.empty()) {
    std::vector<Coupling> later;
    for (const Coupling& one : waiting) {
      const auto is_followed = [&](const Coupling& other) { return other.dof == one.other_dof; };
      (std::any_of(waiting.begin(), waiting.end(), is_followed) ? later : couplings_).push_back(one);
    }
    if (later.size() == waiting.size()) throw std::invalid_argument("muscles: joints are coupled in a circle");
    waiting.swap(later);
  }
}

void MuscleInterface::set_pattern(const std::vector<int>& pattern) {
  const auto n = static_cast<int>(n_muscles()), size = static_cast<int>(n_muscles() * n_coords());
  n_packed_ = pattern.size();
  int last_muscle = 0;
  for (const int index : pattern) {
    if (index < 0 || index >= size || index % n < last_muscle) {
      throw std::invalid_argument("muscles: pattern: expected entries below " + std::to_string(size) +
                                  ", muscle by muscle, got " + std::to_string(index));
    }
    last_muscle = index % n;
    muscles_[static_cast<std::size_t>(last_muscle)].coords.push_back(static_cast<std::size_t>(index / n));
  }
}

MuscleState MuscleInterface::make_state() const {
  const std::vector<double> zeros(n_coords());
  return {std::vector<double>(n_coords() * n_muscles()), std::vector<double>(n_packed_), zeros, zeros, zeros};
}

void MuscleInterface::slopes(const mjModel* model, const mjData* data, double* slopes) const {
  std::fill_n(slopes, model->nv, 1.0);
  for (const Coupling& coupling : couplings_) {
    double slope = 0.0;
    if (coupling.other_dof >= 0) {
      const std::array<double, 5>& c = coupling.coefficients;
      const double x = data->qpos[coupling.other_position] - model->qpos0[coupling.other_position];
      slope = ((4.0 * c[4] * x + 3.0 * c[3]) * x + 2.0 * c[2]) * x + c[1];
      slope = slope * slopes[coupling.other_dof];
    }
    slopes[coupling.dof] = slope;
  }
}

void MuscleInterface::read(const mjModel* model, const mjData* data, const double* slopes, double* arms,
                           MuscleState& state) const {
  const std::size_t n = n_muscles();
  for (auto* numbers : {&state.passive_torque, &state.torque_low, &state.torque_high}) {
    std::fill(numbers->begin(), numbers->end(), 0.0);
  }
  double* packed = state.packed.data();
  for (std::size_t i = 0; i < n; ++i) {
    const Muscle& muscle = muscles_[i];
    const int output = muscle.output;
    const double length = data->actuator_length[output], acc0 = model->actuator_acc0[output];
    const double* length_range = model->actuator_lengthrange + 2 * output;
    const double gain = mju_muscleGain(length, data->actuator_velocity[output], length_range, acc0,
                                       model->actuator_gainprm + mjNGAIN * muscle.actuator);
    const double bias =
        muscle.has_bias ? mju_muscleBias(length, length_range, acc0, model->actuator_biasprm + mjNBIAS * muscle.actuator) : 0.0;
    std::fill_n(arms, n_coords(), 0.0);
    const int begin = data->moment_rowadr[output], end = begin + data->moment_rownnz[output];
    for (int k = begin; k < end; ++k) {
      const int dof = data->moment_colind[k], coordinate = coordinates_[static_cast<std::size_t>(dof)];
      if (coordinate < 0) continue;
      arms[coordinate] += has_couplings() ? data->actuator_moment[k] * slopes[dof] : data->actuator_moment[k];
    }
    for (const std::size_t d : muscle.coords) {
      const double torque = arms[d] * gain;
      state.torque_per_activation[d * n + i] = torque;
      *packed++ = torque;
      state.passive_torque[d] += arms[d] * bias;
      state.torque_low[d] += std::min(torque, 0.0);
      state.torque_high[d] += std::max(torque, 0.0);
    }
  }
}

}  // namespace sb3_hrl
