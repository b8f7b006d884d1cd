// The tests of the engine, which needs MuJoCo.

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "check.hpp"
#include "collision_list_test.hpp"
#include "muscle_test.hpp"
#include "rollout_test.hpp"
#include "sb3_hrl/engine.hpp"
#include "sb3_hrl/errors.hpp"

namespace sb3_hrl::test {
namespace {

const char* const kPendulum = R"(
<mujoco>
  <option timestep="0.01" integrator="Euler"/>
  <worldbody>
    <body name="arm" pos="0 0 1">
      <joint name="hinge" axis="0 1 0" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.5" size="0.05"/>
    </body>
  </worldbody>
  <actuator><motor joint="hinge" ctrlrange="-1 1"/></actuator>
</mujoco>)";

std::string compiled(const char* xml) {
  char error[200] = "";
  mjSpec* spec = mj_parseXMLString(xml, nullptr, error, sizeof(error));
  if (spec == nullptr) throw std::runtime_error(error);
  const ModelHandle model(mj_compile(spec, nullptr));
  const std::string message = mjs_getError(spec);
  mj_deleteSpec(spec);
  if (!model) throw std::runtime_error(message);
  std::string bytes(static_cast<std::size_t>(mj_sizeModel(model.get())), '\0');
  mj_saveModel(model.get(), nullptr, bytes.data(), static_cast<mjtSize>(bytes.size()));
  return bytes;
}

// A pendulum that is rewarded for its speed, falls out of its range now and then, and has a limit of 40 steps.
TaskSpec pendulum() {
  TaskSpec spec;
  spec.model = compiled(kPendulum);
  spec.frame_skip = 3;
  spec.max_episode_steps = 40;
  spec.observation = {{"qpos", {}}, {"qvel", {}}, {"body_xpos", {{"body", {1}}}}};
  spec.values = {{"qpos", {{"index", {0}}}},
                 {"rate", {{"of", {0}}}},
                 {"within", {{"of", {0}}, {"range", {-0.6, 0.6}}}},
                 {"action_squares", {}},
                 {"cost", {{"of", {3}}, {"weight", {0.1}}}},
                 {"sum", {{"of", {1, 4}}}}};
  spec.reset = {{"qpos_uniform", {{"scale", {0.5}}}}, {"qvel_normal", {{"scale", {2.0}}}}};
  spec.reward = 5;
  spec.healthy = 2;
  spec.info = {{false, 1}, {false, 4}};
  spec.reset_info = {{false, 0}};
  return spec;
}

// The arrays of a step, and the arrays themselves.
struct Buffers {
  explicit Buffers(const Engine& engine)
      : obs(engine.n_envs() * engine.task().n_obs()),
        rewards(engine.n_envs()),
        infos(engine.n_envs() * engine.task().n_info()),
        terminal_obs(obs.size()),
        episode_returns(engine.n_envs()),
        reset_infos(engine.n_envs() * engine.task().n_reset_info()),
        terminated(engine.n_envs()),
        truncated(engine.n_envs()),
        unstable(engine.n_envs()),
        n_held(engine.n_envs()),
        episode_lengths(engine.n_envs()) {}

  StepArrays arrays() {
    return {obs.data(),          rewards.data(), terminated.data(),      truncated.data(),       infos.data(),
            terminal_obs.data(), n_held.data(),  episode_returns.data(), episode_lengths.data(), reset_infos.data(),
            unstable.data()};
  }

  std::vector<double> obs, rewards, infos, terminal_obs, episode_returns, reset_infos;
  std::vector<std::uint8_t> terminated, truncated, unstable;
  std::vector<std::int32_t> n_held;
  std::vector<std::int64_t> episode_lengths;
};

void reset_all(Engine& engine, Buffers& buffers) {
  std::vector<std::size_t> indices(engine.n_envs());
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  engine.reset(indices.data(), nullptr, indices.size(), buffers.obs.data(), buffers.reset_infos.data());
}

// All that an engine writes in some steps, one after the other.
std::vector<double> trace(Engine& engine, int n_steps) {
  Buffers buffers(engine);
  reset_all(engine, buffers);
  std::vector<double> seen = buffers.obs;
  for (int t = 0; t < n_steps; ++t) {
    std::vector<float> actions(engine.n_envs());
    std::vector<std::int32_t> n_hold(engine.n_envs());
    for (std::size_t i = 0; i < actions.size(); ++i) {
      actions[i] = static_cast<float>((7 * t + 3 * static_cast<int>(i)) % 11 - 5) / 5.0f;
      n_hold[i] = static_cast<std::int32_t>(i % 3) + 1;
    }
    engine.step(actions.data(), n_hold.data(), 0.9, buffers.arrays());
    for (const auto* numbers : {&buffers.obs, &buffers.rewards, &buffers.infos, &buffers.terminal_obs}) {
      seen.insert(seen.end(), numbers->begin(), numbers->end());
    }
    seen.insert(seen.end(), buffers.terminated.begin(), buffers.terminated.end());
    seen.insert(seen.end(), buffers.n_held.begin(), buffers.n_held.end());
  }
  return seen;
}

void threads_change_nothing() {
  Engine reference(pendulum(), 7, 1, 5);
  const std::vector<double> expected = trace(reference, 60);
  for (const int n_threads : {2, 3, 8}) {
    Engine engine(pendulum(), 7, n_threads, 5);
    CHECK_EQUAL(trace(engine, 60) == expected, true);
  }
  Engine other_seed(pendulum(), 7, 1, 6);
  CHECK_EQUAL(trace(other_seed, 60) == expected, false);
}

// A controller that does what happens without one.
class PlainController : public Controller {
 public:
  void begin_step(const mjModel*, mjData* data, const float* action) override { data->ctrl[0] = action[0]; }
  const Question* begin_substep(const mjModel*, mjData*, int) override { return nullptr; }
};

void a_plain_controller_changes_nothing() {
  Engine reference(pendulum(), 3, 1, 5), engine(pendulum(), 3, 2, 5);
  for (std::size_t i = 0; i < 3; ++i) engine.simulation(i).set_controller(std::make_unique<PlainController>());
  CHECK_EQUAL(trace(engine, 60) == trace(reference, 60), true);
}

class CountingController : public PlainController {
 public:
  explicit CountingController(std::vector<int>& substeps) : substeps_(substeps) {}
  const Question* begin_substep(const mjModel*, mjData* data, int substep) override {
    substeps_.push_back(substep);
    data->ctrl[0] = -data->ctrl[0];
    return nullptr;
  }

 private:
  std::vector<int>& substeps_;
};

void a_controller_acts_at_every_substep() {
  Engine reference(pendulum(), 1, 1, 5), engine(pendulum(), 1, 1, 5);
  std::vector<int> substeps;
  engine.simulation(0).set_controller(std::make_unique<CountingController>(substeps));
  CHECK_EQUAL(trace(engine, 1) == trace(reference, 1), false);
  CHECK_EQUAL(substeps == std::vector<int>({0, 1, 2}), true);
}

// Throws at the n-th substep.
class ThrowingController : public PlainController {
 public:
  ThrowingController(int n_substeps, std::function<void()> fault) : n_left_(n_substeps), fault_(std::move(fault)) {}
  const Question* begin_substep(const mjModel*, mjData*, int) override {
    if (--n_left_ == 0) fault_();
    return nullptr;
  }

 private:
  int n_left_;
  std::function<void()> fault_;
};

void an_error_names_environment_and_step() {
  for (const int n_threads : {1, 2, 5}) {
    Engine engine(pendulum(), 5, n_threads, 5), reference(pendulum(), 5, 1, 5);
    Buffers buffers(engine), expected(reference);
    reset_all(engine, buffers);
    reset_all(reference, expected);
    const auto fault = [] { throw std::runtime_error("planted"); };
    for (const std::size_t i : {4, 2}) {  // in the second step
      engine.simulation(i).set_controller(std::make_unique<ThrowingController>(5, fault));
    }
    const std::vector<float> actions(5, 0.5f);
    engine.step(actions.data(), nullptr, 1.0, buffers.arrays());
    reference.step(actions.data(), nullptr, 1.0, expected.arrays());
    CHECK_EQUAL(message_of<NativeError>([&] { engine.step(actions.data(), nullptr, 1.0, buffers.arrays()); }),
                "environment 2, step 1 of its episode: planted");
    reference.step(actions.data(), nullptr, 1.0, expected.arrays());
    for (const std::size_t i : {0, 1, 3}) CHECK_EQUAL(buffers.rewards[i], expected.rewards[i]);  // the others finished
    CHECK_EQUAL(message_of<NativeError>([&] { engine.step(actions.data(), nullptr, 1.0, buffers.arrays()); }),
                "environment 2, step 1 of its episode: it must be reset before it can step");
    reset_all(engine, buffers);
    engine.step(actions.data(), nullptr, 1.0, buffers.arrays());
  }
}

void an_error_of_mujoco_does_not_end_the_process() {
  Engine engine(pendulum(), 2, 2, 5);
  Buffers buffers(engine);
  reset_all(engine, buffers);
  engine.simulation(1).set_controller(
      std::make_unique<ThrowingController>(1, [] { guarded([] { mju_error("planted %d", 7); }); }));
  const std::vector<float> actions(2, 0.5f);
  CHECK_EQUAL(message_of<NativeError>([&] { engine.step(actions.data(), nullptr, 1.0, buffers.arrays()); }),
              "environment 1, step 0 of its episode: MuJoCo: planted 7");
}

void an_episode_that_ends_is_reset_at_once() {
  Engine engine(pendulum(), 4, 2, 5);
  Buffers buffers(engine);
  reset_all(engine, buffers);
  const std::vector<float> actions(4, 0.0f);
  const std::size_t n_obs = engine.task().n_obs();
  int n_terminated = 0, n_truncated = 0;
  std::vector<double> returns(4, 0.0);
  std::vector<std::int64_t> lengths(4, 0);
  for (int t = 0; t < 200; ++t) {
    engine.step(actions.data(), nullptr, 1.0, buffers.arrays());
    for (std::size_t i = 0; i < 4; ++i) {
      returns[i] += buffers.rewards[i];
      ++lengths[i];
      n_terminated += buffers.terminated[i];
      n_truncated += buffers.truncated[i];
      if (!buffers.terminated[i] && !buffers.truncated[i]) continue;
      const double last_angle = buffers.terminal_obs[i * n_obs], first_angle = buffers.obs[i * n_obs];
      CHECK_EQUAL(std::abs(last_angle) >= 0.6, buffers.terminated[i] == 1);
      CHECK_EQUAL(std::abs(first_angle) <= 0.5, true);
      CHECK_EQUAL(buffers.reset_infos[i], first_angle);
      CHECK_EQUAL(buffers.episode_returns[i], returns[i]);
      CHECK_EQUAL(buffers.episode_lengths[i], lengths[i]);
      returns[i] = 0.0;
      lengths[i] = 0;
    }
  }
  CHECK_EQUAL(n_terminated > 0, true);
  CHECK_EQUAL(n_truncated > 0, true);
}

void a_state_continues_exactly() {
  Engine engine(pendulum(), 2, 1, 5);
  trace(engine, 13);
  const std::string state = engine.simulation(1).get_state();
  Engine other(pendulum(), 1, 1, 99);
  Buffers buffers(engine), other_buffers(other);
  other.simulation(0).set_state(state);
  for (int t = 0; t < 100; ++t) {
    const float actions[] = {0.0f, static_cast<float>(t % 5) / 5.0f};
    engine.step(actions, nullptr, 1.0, buffers.arrays());
    other.step(actions + 1, nullptr, 1.0, other_buffers.arrays());
    CHECK_EQUAL(std::equal(other_buffers.obs.begin(), other_buffers.obs.end(), buffers.obs.begin() + 5), true);
    CHECK_EQUAL(other_buffers.rewards[0], buffers.rewards[1]);
  }
  CHECK_EQUAL(message_of<std::invalid_argument>([&] { other.simulation(0).set_state(state + "x"); }),
              "expected a state of " + std::to_string(state.size()) + " bytes, got " + std::to_string(state.size() + 1));
}

std::string refusal(const std::function<void(TaskSpec&)>& spoil) {
  TaskSpec spec = pendulum();
  spoil(spec);
  return message_of<std::invalid_argument>([&] { Task task(spec); });
}

void wrong_terms_are_refused() {
  CHECK_EQUAL(refusal([](TaskSpec& spec) { spec.values[1].term = "raet"; }), "values[1]: term: there is no value term 'raet'");
  CHECK_EQUAL(refusal([](TaskSpec& spec) { spec.observation[0].term = "rate"; }),
              "observation[0]: term: there is no array term 'rate'");
  CHECK_EQUAL(refusal([](TaskSpec& spec) { spec.reset[0].term = "qpos"; }), "reset[0]: term: there is no reset term 'qpos'");
  CHECK_EQUAL(refusal([](TaskSpec& spec) { spec.values[1].arguments["from"] = {0}; }),
              "values[1]: from: the term 'rate' has no such argument");
  CHECK_EQUAL(refusal([](TaskSpec& spec) { spec.values[1].arguments.clear(); }),
              "values[1]: of: the term 'rate' needs this argument");
  CHECK_EQUAL(refusal([](TaskSpec& spec) { spec.values[0].arguments["index"] = {1}; }),
              "values[0]: index: expected a whole number from -1 to 0, got 1");
  CHECK_EQUAL(refusal([](TaskSpec& spec) { spec.values[1].arguments["of"] = {1}; }),
              "values[1]: of: expected a whole number from -1 to 0, got 1");
  CHECK_EQUAL(refusal([](TaskSpec& spec) { spec.values[2].arguments["range"] = {1}; }),
              "values[2]: range: expected two numbers, got 1");
  CHECK_EQUAL(refusal([](TaskSpec& spec) { spec.observation[0].arguments["start"] = {2}; }),
              "observation[0]: start: expected a whole number from -1 to 1, got 2");
  CHECK_EQUAL(refusal([](TaskSpec& spec) { spec.reset_info = {{false, 1}}; }),
              "values[1]: it needs a step, so neither a reset's info nor a rate can use it");
  CHECK_EQUAL(refusal([](TaskSpec& spec) { spec.reward = 6; }), "reward: there is no number 6 among 6");
  CHECK_EQUAL(refusal([](TaskSpec& spec) { spec.frame_skip = 0; }), "frame_skip: expected at least 1, got 0");
  CHECK_EQUAL(refusal([](TaskSpec& spec) { spec.model = "no model"; }).empty(), false);
}

void only_what_is_needed_is_computed() {
  TaskSpec spec = pendulum();
  CHECK_EQUAL(Task(spec).needs_post_step(), false);
  CHECK_EQUAL(Task(spec).derived_fields().size(), std::size_t{1});  // xpos
  spec.observation.push_back({"cfrc_ext", {}});
  CHECK_EQUAL(Task(spec).needs_post_step(), true);
  CHECK_EQUAL(Task(spec).derived_fields().size(), std::size_t{2});
}

}  // namespace

void add_tests(std::map<std::string, std::function<void()>>& tests) {
  tests["engine: threads change nothing"] = threads_change_nothing;
  tests["engine: a plain controller changes nothing"] = a_plain_controller_changes_nothing;
  tests["engine: a controller acts at every substep"] = a_controller_acts_at_every_substep;
  tests["engine: an error names environment and step"] = an_error_names_environment_and_step;
  tests["engine: an error of MuJoCo does not end the process"] = an_error_of_mujoco_does_not_end_the_process;
  tests["engine: an episode that ends is reset at once"] = an_episode_that_ends_is_reset_at_once;
  tests["engine: a state continues exactly"] = a_state_continues_exactly;
  add_collision_list_tests(tests, compiled);
  add_muscle_tests(tests, compiled);
  add_rollout_tests(tests, pendulum());
  tests["task: wrong terms are refused"] = wrong_terms_are_refused;
  tests["task: only what is needed is computed"] = only_what_is_needed_is_computed;
}

}  // namespace sb3_hrl::test
