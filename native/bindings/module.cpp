// The Python face of the core: checks nothing, decides nothing. sb3_hrl.native is the checked front.

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>

#include <exception>

#include "engine.hpp"
#include "images.hpp"
#include "muscles.hpp"
#include "rollout.hpp"
#include "sb3_hrl/build_info.hpp"
#include "sb3_hrl/cpus.hpp"
#include "sb3_hrl/errors.hpp"
#include "sb3_hrl/thread_pool.hpp"

namespace py = pybind11;

PYBIND11_MODULE(_native, module) {
  module.attr("pybind11_version") = PYBIND11_TOSTRING(PYBIND11_VERSION_MAJOR) "." PYBIND11_TOSTRING(
      PYBIND11_VERSION_MINOR) "." PYBIND11_TOSTRING(PYBIND11_VERSION_PATCH);

  py::register_local_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const sb3_hrl::NativeError& native_error) {
      py::set_error(py::module_::import("sb3_hrl.errors").attr("NativeError"), native_error.what());
    }
  });

  py::class_<sb3_hrl::BuildInfo>(module, "BuildInfo")
      .def_readonly("compiler", &sb3_hrl::BuildInfo::compiler)
      .def_readonly("cxx_standard", &sb3_hrl::BuildInfo::cxx_standard)
      .def_readonly("build_type", &sb3_hrl::BuildInfo::build_type)
      .def_readonly("torch_header", &sb3_hrl::BuildInfo::torch_header)
      .def_readonly("torch_library", &sb3_hrl::BuildInfo::torch_library)
      .def_readonly("mujoco_header", &sb3_hrl::BuildInfo::mujoco_header)
      .def_readonly("mujoco_library", &sb3_hrl::BuildInfo::mujoco_library);
  module.def("build_info", &sb3_hrl::build_info);
  module.def("available_cpus", [] { return sb3_hrl::available_cpus(); });

  // A task that is a Python callable takes the GIL for itself (pybind11/functional.h); native tasks never need it.
  py::class_<sb3_hrl::ThreadPool>(module, "ThreadPool")
      .def(py::init<int>(), py::arg("n_threads"))
      .def_property_readonly("n_threads", &sb3_hrl::ThreadPool::n_threads)
      .def("run", &sb3_hrl::ThreadPool::run, py::arg("n_tasks"), py::arg("task"),
           py::call_guard<py::gil_scoped_release>());

  sb3_hrl::bind_engine(module);
  sb3_hrl::bind_images(module);
  sb3_hrl::bind_muscles(module);
  sb3_hrl::bind_rollout(module);
}
