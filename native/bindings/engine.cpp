// The Python face of the engine. sb3_hrl.envs.engine is the checked front: here only the sizes of arrays are compared once
// more, since a wrong one would write into somebody else's memory.

#include "engine.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "sb3_hrl/engine.hpp"
#include "sb3_hrl/low_level.hpp"

namespace py = pybind11;

namespace sb3_hrl {
namespace {

const Simulation& simulation(const Engine& engine, std::size_t index) {
  if (index >= engine.n_envs()) throw std::invalid_argument("there is no environment " + std::to_string(index));
  return engine.simulation(index);
}

Simulation& simulation(Engine& engine, std::size_t index) {
  return const_cast<Simulation&>(simulation(static_cast<const Engine&>(engine), index));
}

void reset(Engine& engine, const std::vector<std::size_t>& indices,
           const std::vector<std::optional<std::uint64_t>>& seeds, Array<double>& obs, Array<double>& reset_infos) {
  const std::size_t n = indices.size();
  for (const std::size_t index : indices) simulation(engine, index);
  if (!seeds.empty() && seeds.size() != n) throw std::invalid_argument("expected as many seeds as indices");
  double* obs_data = output(obs, n * engine.task().n_obs());
  double* info_data = output(reset_infos, n * engine.task().n_reset_info());
  py::gil_scoped_release release;
  engine.reset(indices.data(), seeds.empty() ? nullptr : seeds.data(), n, obs_data, info_data);
}

void step(Engine& engine, const Array<float>& actions, const std::optional<Array<std::int32_t>>& n_hold, double gamma,
          Array<double>& obs, Array<double>& rewards, Array<std::uint8_t>& terminated, Array<std::uint8_t>& truncated,
          Array<double>& infos, Array<double>& terminal_obs, Array<std::int32_t>& n_held, Array<double>& episode_returns,
          Array<std::int64_t>& episode_lengths, Array<double>& reset_infos, Array<std::uint8_t>& unstable,
          Array<float>& samples) {
  const std::size_t n = engine.n_envs(), n_obs = engine.task().n_obs();
  const float* action_data = input(actions, n * engine.task().n_actions());
  const std::int32_t* hold_data = n_hold ? input(*n_hold, n) : nullptr;
  const StepArrays out{output(obs, n * n_obs),
                       output(rewards, n),
                       output(terminated, n),
                       output(truncated, n),
                       output(infos, n * engine.task().n_info()),
                       output(terminal_obs, n * n_obs),
                       output(n_held, n),
                       output(episode_returns, n),
                       output(episode_lengths, n),
                       output(reset_infos, n * engine.task().n_reset_info()),
                       output(unstable, n),
                       output(samples, n * engine.task().n_sample())};
  py::gil_scoped_release release;
  engine.step(action_data, hold_data, gamma, out);
}

void get_qpos_qvel(const Engine& engine, std::size_t index, Array<double>& qpos, Array<double>& qvel) {
  const Simulation& chosen = simulation(engine, index);
  chosen.get_qpos_qvel(output(qpos, chosen.n_qpos()), output(qvel, chosen.n_qvel()));
}

void set_qpos_qvel(Engine& engine, std::size_t index, const Array<double>& qpos, const Array<double>& qvel,
                   Array<double>& obs) {
  Simulation& chosen = simulation(engine, index);
  chosen.set_qpos_qvel(input(qpos, chosen.n_qpos()), input(qvel, chosen.n_qvel()), output(obs, engine.task().n_obs()));
}

}  // namespace

void bind_engine(py::module_& module) {
  py::class_<ArgumentInfo>(module, "ArgumentInfo")
      .def_readonly("name", &ArgumentInfo::name)
      .def_readonly("type", &ArgumentInfo::type)
      .def_readonly("is_required", &ArgumentInfo::is_required);
  py::class_<TermInfo>(module, "TermInfo")
      .def_readonly("kind", &TermInfo::kind)
      .def_readonly("name", &TermInfo::name)
      .def_readonly("arguments", &TermInfo::arguments);
  module.def("known_terms", &known_terms);
  module.def("compile_model", [](const std::string& path) { return py::bytes(compile_model(path)); }, py::arg("path"));

  py::class_<TermSpec>(module, "TermSpec")
      .def(py::init<std::string, std::map<std::string, std::vector<double>>>(), py::arg("term"), py::arg("arguments"));
  py::class_<InfoSpec>(module, "InfoSpec").def(py::init<bool, std::size_t>(), py::arg("is_array"), py::arg("index"));
  py::class_<MuscleSettings>(module, "MuscleSettings")
      .def(py::init([](int actuation, int activation, std::vector<int> dofs, std::vector<int> pattern, std::vector<double> low,
                       std::vector<double> high, std::vector<double> nominal, std::vector<double> scale,
                       std::vector<double> stiffness, std::vector<double> damping, std::vector<double> torque_limit,
                       bool has_cascade) {
             return MuscleSettings{static_cast<Actuation>(actuation),
                                   static_cast<Activation>(activation),
                                   std::move(dofs),
                                   std::move(pattern),
                                   std::move(low),
                                   std::move(high),
                                   std::move(nominal),
                                   std::move(scale),
                                   std::move(stiffness),
                                   std::move(damping),
                                   std::move(torque_limit),
                                   has_cascade};
           }),
           py::kw_only(), py::arg("actuation"), py::arg("activation"), py::arg("dofs"), py::arg("pattern"), py::arg("low"),
           py::arg("high"), py::arg("nominal"), py::arg("scale"), py::arg("stiffness"), py::arg("damping"),
           py::arg("torque_limit"), py::arg("has_cascade"));
  // Others are bound where they are made; what an Engine has been given lives as long as it needs it.
  py::class_<LowLevel, std::shared_ptr<LowLevel>>(module, "LowLevel");
  py::class_<QpLowLevel, LowLevel, std::shared_ptr<QpLowLevel>>(module, "QpLowLevel")
      .def(py::init<double, double>(), py::arg("torque_scale"), py::arg("effort"));
  py::class_<TorqueLowLevel, LowLevel, std::shared_ptr<TorqueLowLevel>>(module, "TorqueLowLevel").def(py::init<>());
  py::class_<TaskSpec>(module, "TaskSpec")
      .def(py::init([](const py::bytes& model, int frame_skip, int max_episode_steps, std::vector<TermSpec> observation,
                       std::vector<TermSpec> values, std::vector<TermSpec> arrays, std::vector<TermSpec> reset,
                       std::size_t reward, int healthy, std::vector<InfoSpec> info, std::vector<InfoSpec> reset_info,
                       int norm_order, std::optional<MuscleSettings> muscles) {
             return TaskSpec{std::string(model), frame_skip,       max_episode_steps, std::move(observation),
                             std::move(values),  std::move(arrays), std::move(reset),  reward,
                             healthy,            std::move(info),   std::move(reset_info), static_cast<NormOrder>(norm_order),
                             std::move(muscles)};
           }),
           py::kw_only(), py::arg("model"), py::arg("frame_skip"), py::arg("max_episode_steps"), py::arg("observation"),
           py::arg("values"), py::arg("arrays"), py::arg("reset"), py::arg("reward"), py::arg("healthy"), py::arg("info"),
           py::arg("reset_info"), py::arg("norm_order"), py::arg("muscles"));

  py::class_<Task>(module, "Task")
      .def(py::init<const TaskSpec&>(), py::arg("spec"))
      .def_property_readonly("n_obs", &Task::n_obs)
      .def_property_readonly("n_actions", &Task::n_actions)
      .def_property_readonly("n_sample", &Task::n_sample)
      .def_property_readonly("n_info", &Task::n_info)
      .def_property_readonly("n_reset_info", &Task::n_reset_info)
      .def_property_readonly("array_sizes", &Task::array_sizes)
      .def_property_readonly("needs_post_step", &Task::needs_post_step)
      .def_property_readonly("derived_fields", [](const Task& task) {
        std::vector<std::string> names;
        for (const Field* field : task.derived_fields()) names.emplace_back(field->name);
        return names;
      });

  py::class_<Instability>(module, "Instability")
      .def_readonly("n_events", &Instability::n_events)
      .def_readonly("seed", &Instability::seed)
      .def_readonly("n_episode_steps", &Instability::n_episode_steps)
      .def_readonly("n_total_steps", &Instability::n_total_steps);

  const auto array = [](const char* name) { return py::arg(name).noconvert(); };
  py::class_<Engine>(module, "Engine")
      .def(py::init<const TaskSpec&, std::size_t, int, std::uint64_t>(), py::arg("spec"), py::arg("n_envs"),
           py::arg("n_threads"), py::arg("seed"), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("n_envs", &Engine::n_envs)
      .def_property_readonly("n_threads", &Engine::n_threads)
      .def_property_readonly("n_sample", [](const Engine& engine) { return engine.task().n_sample(); })
      .def_property_readonly("n_qpos", [](const Engine& engine) { return engine.task().model()->nq; })
      .def_property_readonly("n_qvel", [](const Engine& engine) { return engine.task().model()->nv; })
      .def("reset", &reset, py::arg("indices"), py::arg("seeds"), array("obs"), array("reset_infos"))
      .def("step", &step, array("actions"), array("n_hold"), py::arg("gamma"), array("obs"), array("rewards"),
           array("terminated"), array("truncated"), array("infos"), array("terminal_obs"), array("n_held"),
           array("episode_returns"), array("episode_lengths"), array("reset_infos"), array("unstable"), array("samples"))
      .def("set_low_level",
           [](Engine& engine, const std::shared_ptr<LowLevel>& low_level) { engine.set_low_level(low_level); },
           py::arg("low_level"))
      .def("muscle_summary",
           [](const Engine& engine, std::size_t index, Array<double>& summary) {
             const ControlSummary* found = simulation(engine, index).summary();
             if (found == nullptr) throw std::invalid_argument("this task has no muscles");
             const double numbers[] = {found->effort,     found->mean_activation, found->torque_error,
                                       found->saturation, found->co_contraction,  found->infeasible};
             std::copy(std::begin(numbers), std::end(numbers), output(summary, std::size(numbers)));
           },
           py::arg("index"), array("summary"))
      .def("get_state",
           [](const Engine& engine, std::size_t index) { return py::bytes(simulation(engine, index).get_state()); },
           py::arg("index"))
      .def("set_state",
           [](Engine& engine, std::size_t index, const py::bytes& state) {
             simulation(engine, index).set_state(std::string(state));
           },
           py::arg("index"), py::arg("state"))
      .def("get_qpos_qvel", &get_qpos_qvel, py::arg("index"), array("qpos"), array("qvel"))
      .def("set_qpos_qvel", &set_qpos_qvel, py::arg("index"), array("qpos"), array("qvel"), array("obs"))
      .def("observe",
           [](const Engine& engine, std::size_t index, Array<double>& obs) {
             simulation(engine, index).observe(output(obs, engine.task().n_obs()));
           },
           py::arg("index"), array("obs"))
      .def("instability",
           [](const Engine& engine, std::size_t index) { return simulation(engine, index).instability(); },
           py::arg("index"));
}

}  // namespace sb3_hrl
