// The Python face of the muscle network. sb3_hrl.muscle.muscles is the checked front.

#include "muscles.hpp"

#include <pybind11/stl.h>

#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "sb3_hrl/muscle_network.hpp"
#include "sb3_hrl/network_low_level.hpp"

namespace py = pybind11;

namespace sb3_hrl {
namespace {

using PyLevel = std::vector<std::pair<Array<float>, Array<float>>>;

std::shared_ptr<MuscleNetwork> make_network(const std::vector<PyLevel>& levels, const std::vector<float>& packed_scale,
                                            const std::vector<float>& torque_scale, int vector_bits) {
  std::vector<MuscleNetwork::Level> specs;
  for (const PyLevel& level : levels) {
    specs.emplace_back();
    for (const auto& [weight, bias] : level) {
      if (weight.ndim() != 2) throw std::invalid_argument("expected a weight with two axes");
      const auto n_in = static_cast<std::size_t>(weight.shape(0)), n_out = static_cast<std::size_t>(weight.shape(1));
      specs.back().push_back({weight.data(), input(bias, n_out), n_in, n_out});
    }
  }
  return std::make_shared<MuscleNetwork>(specs, packed_scale, torque_scale,
                                         vector_bits == 0 ? widest_vector_bits() : vector_bits);
}

void activate(const MuscleNetwork& network, const Array<double>& packed, const Array<double>& desired_torque,
              const Array<double>& weight, Array<double>& activation) {
  const auto n_rows = static_cast<std::size_t>(weight.size());
  const double* const packed_rows = input(packed, n_rows * network.n_packed());
  const double* const torque_rows = input(desired_torque, n_rows * network.n_coords());
  const double* const weights = weight.data();
  double* const rows = output(activation, n_rows * network.n_muscles());
  const py::gil_scoped_release release;
  const std::size_t n_workspace = network.n_workspace();
  std::vector<float> workspaces(MuscleNetwork::kRows * n_workspace);
  std::vector<MuscleNetwork::Row> together;
  for (std::size_t row = 0; row < n_rows; ++row) {
    together.push_back({packed_rows + row * network.n_packed(), torque_rows + row * network.n_coords(), weights[row],
                        workspaces.data() + together.size() * n_workspace, rows + row * network.n_muscles()});
    if (together.size() < MuscleNetwork::kRows && row + 1 < n_rows) continue;
    network.activate(together.data(), together.size());
    together.clear();
  }
}

}  // namespace

void bind_muscles(py::module_& module) {
  module.def("widest_vector_bits", &widest_vector_bits);
  const auto array = [](const char* name) { return py::arg(name).noconvert(); };
  py::class_<MuscleNetwork, std::shared_ptr<MuscleNetwork>>(module, "MuscleNetwork")
      .def(py::init(&make_network), py::arg("levels"), py::arg("packed_scale"), py::arg("torque_scale"),
           py::arg("vector_bits") = 0)
      .def_property_readonly("n_packed", &MuscleNetwork::n_packed)
      .def_property_readonly("n_coords", &MuscleNetwork::n_coords)
      .def_property_readonly("n_muscles", &MuscleNetwork::n_muscles)
      .def("activate", &activate, array("packed"), array("desired_torque"), array("weight"), array("activation"));
  py::class_<NetworkLowLevel, LowLevel, std::shared_ptr<NetworkLowLevel>>(module, "NetworkLowLevel")
      .def(py::init([](const std::shared_ptr<MuscleNetwork>& network) { return std::make_shared<NetworkLowLevel>(network); }),
           py::arg("network"));
}

}  // namespace sb3_hrl
