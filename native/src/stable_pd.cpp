#include "sb3_hrl/stable_pd.hpp"

#include <algorithm>

#include "sb3_hrl/errors.hpp"
#include "sb3_hrl/mujoco_handle.hpp"

namespace sb3_hrl {

StablePd::StablePd(const mjModel* model, const MuscleInterface& interface, const MuscleSettings& settings)
    : interface_(&interface),
      stiffness_(settings.stiffness),
      damping_(settings.damping),
      full_(static_cast<std::size_t>(model->nv * model->nv)),
      forces_(static_cast<std::size_t>(model->nv)),
      pd_(interface.n_coords()),
      acceleration_(interface.n_independent()) {
  for (const int dof : interface.dofs()) {
    rows_.push_back(static_cast<std::size_t>(interface.places()[static_cast<std::size_t>(dof)]));
  }
  if (interface.has_couplings()) {
    matrix_.resize(interface.n_independent() * interface.n_independent());
    force_.resize(interface.n_independent());
  }
}

// T' M T and T' f, in the order of the degrees of freedom.
void StablePd::reduce(const double* slopes, std::size_t nv) {
  const std::vector<int>& places = interface_->places();
  const std::size_t n = interface_->n_independent();
  std::fill(matrix_.begin(), matrix_.end(), 0.0);
  std::fill(force_.begin(), force_.end(), 0.0);
  for (std::size_t i = 0; i < nv; ++i) {
    if (places[i] < 0) continue;
    const auto row = static_cast<std::size_t>(places[i]);
    force_[row] += slopes[i] * forces_[i];
    for (std::size_t j = 0; j < nv; ++j) {
      if (places[j] < 0) continue;
      matrix_[row * n + static_cast<std::size_t>(places[j])] += slopes[i] * full_[i * nv + j] * slopes[j];
    }
  }
}

void StablePd::torque(const mjModel* model, const mjData* data, const double* slopes, const double* target, double* torque) {
  const double h = model->opt.timestep;
  const auto nv = static_cast<std::size_t>(model->nv), n = interface_->n_independent();
  guarded([&] { mj_fullM(model, data, full_.data()); });
  for (std::size_t i = 0; i < nv; ++i) {
    forces_[i] = (data->qfrc_passive[i] - data->qfrc_bias[i]) + data->qfrc_constraint[i];
  }
  double *matrix = full_.data(), *force = forces_.data();
  if (interface_->has_couplings()) {
    reduce(slopes, nv);
    matrix = matrix_.data();
    force = force_.data();
  }
  for (std::size_t d = 0; d < rows_.size(); ++d) {
    const double position = data->qpos[interface_->positions()[d]], velocity = data->qvel[interface_->dofs()[d]];
    pd_[d] = -stiffness_[d] * ((position + h * velocity) - target[d]) + -damping_[d] * velocity;
    matrix[rows_[d] * n + rows_[d]] += h * damping_[d];
    force[rows_[d]] += pd_[d];
  }
  int rank = 0;
  guarded([&] {
    rank = mju_cholFactor(matrix, static_cast<int>(n), mjMINVAL);
    mju_cholSolve(acceleration_.data(), matrix, force, static_cast<int>(n));
  });
  if (rank < static_cast<int>(n)) throw NativeError("stable PD: the inertia matrix is not positive definite");
  for (std::size_t d = 0; d < rows_.size(); ++d) torque[d] = pd_[d] - h * damping_[d] * acceleration_[rows_[d]];
}

}  // namespace sb3_hrl
