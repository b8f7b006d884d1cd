#include "muscle_test.hpp"

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "check.hpp"
#include "sb3_hrl/engine.hpp"
#include "sb3_hrl/errors.hpp"
#include "sb3_hrl/low_level.hpp"

namespace sb3_hrl::test {
namespace {

// A pendulum on a floor that it can hit, between two muscles, with a follower that a third muscle spans, and a motor before
// them. Degrees of freedom: hinge, follower.
constexpr const char* kMuscledPendulum = R"(
<mujoco>
  <option timestep="0.002" integrator="implicitfast"/>
  <worldbody>
    <geom type="plane" size="2 2 1" pos="0 0 0.52"/>
    <body pos="0 0 1">
      <joint name="hinge" axis="0 1 0" range="-80 80" limited="true" damping="0.1"/>
      <geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.05"/>
      <body pos="0 0 -0.4">
        <joint name="follower" axis="0 1 0" damping="0.1"/>
        <geom type="sphere" size="0.06"/>
      </body>
    </body>
  </worldbody>
  <equality><joint joint1="follower" joint2="hinge" polycoef="0 0.5 0.1 0 0"/></equality>
  <tendon>
    <fixed name="front"><joint joint="hinge" coef="-0.05"/></fixed>
    <fixed name="back"><joint joint="hinge" coef="0.05"/></fixed>
    <fixed name="long"><joint joint="hinge" coef="0.02"/><joint joint="follower" coef="0.03"/></fixed>
  </tendon>
  <actuator>
    <motor joint="hinge" gear="0.1"/>
    <muscle tendon="front" force="500" lengthrange="-0.1 0.1" ctrlrange="0 1"/>
    <muscle tendon="back" force="500" lengthrange="-0.1 0.1" ctrlrange="0 1"/>
    <muscle tendon="long" force="300" lengthrange="-0.1 0.1" ctrlrange="0 1"/>
  </actuator>
</mujoco>)";

constexpr int kMuscleFrameSkip = 4;

TaskSpec muscle_spec(const std::string& model) {
  TaskSpec spec;
  spec.model = model;
  spec.frame_skip = kMuscleFrameSkip;
  spec.max_episode_steps = 30;
  spec.observation = {{"qpos", {}}, {"qvel", {}}, {"act", {}}};
  spec.values = {{"qvel", {{"index", {0}}}}};
  spec.reset = {{"qpos_uniform", {{"scale", {0.3}}}}, {"qvel_normal", {{"scale", {1.0}}}}};
  MuscleSettings muscles;
  muscles.dofs = {0};
  muscles.pattern = {0, 1, 2};
  muscles.low = {-1.4};
  muscles.high = {1.4};
  muscles.nominal = {0.0};
  muscles.scale = {0.8};
  muscles.stiffness = {60.0};
  muscles.damping = {5.0};
  muscles.torque_limit = {10.0};
  spec.muscles = muscles;
  return spec;
}

struct MuscleRun {
  std::vector<double> numbers;
  std::vector<float> samples;
  bool operator==(const MuscleRun& other) const { return numbers == other.numbers && samples == other.samples; }
};

// `n_steps` of every environment, with held actions; without a reset where `is_reset` says so.
MuscleRun run_muscles(Engine& engine, int first_step, int n_steps, bool is_reset = false) {
  const std::size_t n = engine.n_envs(), n_obs = engine.task().n_obs(), n_sample = engine.task().n_sample();
  std::vector<double> obs(n * n_obs), rewards(n), terminal_obs(n * n_obs), returns(n);
  std::vector<std::uint8_t> terminated(n), truncated(n), unstable(n);
  std::vector<std::int32_t> n_held(n), n_hold(n);
  std::vector<std::int64_t> lengths(n);
  std::vector<float> samples(n * n_sample), actions(n * engine.task().n_actions());
  double nothing = 0.0;
  const StepArrays out{obs.data(),          rewards.data(), terminated.data(), truncated.data(), &nothing,        terminal_obs.data(),
                       n_held.data(),       returns.data(), lengths.data(),    &nothing,         unstable.data(), samples.data()};
  if (!is_reset) {
    std::vector<std::size_t> indices(n);
    for (std::size_t i = 0; i < n; ++i) indices[i] = i;
    engine.reset(indices.data(), nullptr, n, obs.data(), &nothing);
  }
  MuscleRun run;
  for (int t = first_step; t < first_step + n_steps; ++t) {
    for (std::size_t i = 0; i < actions.size(); ++i) actions[i] = static_cast<float>((5 * t + 3) % 9 - 4) / 4.0f;
    for (std::size_t i = 0; i < n; ++i) n_hold[i] = t % 3 + 1;
    engine.step(actions.data(), n_hold.data(), 0.9, out);
    run.numbers.insert(run.numbers.end(), obs.begin(), obs.end());
    run.numbers.insert(run.numbers.end(), rewards.begin(), rewards.end());
    run.samples.insert(run.samples.end(), samples.begin(), samples.end());
  }
  return run;
}

const auto kQp = std::make_shared<const QpLowLevel>(100.0, 1e-4);

void muscles_move_the_body(const TaskSpec& spec) {
  Engine engine(spec, 1, 1, 5);
  CHECK_EQUAL(engine.task().n_actions(), std::size_t{1});
  CHECK_EQUAL(engine.task().n_sample(), std::size_t{4});
  CHECK_EQUAL(engine.task().derived_fields().size(), std::size_t{1});  // qfrc_constraint
  engine.set_low_level(kQp);
  const MuscleRun run = run_muscles(engine, 0, 20);
  bool is_activated = false;
  for (const double number : run.numbers) CHECK_EQUAL(std::isfinite(number), true);
  for (std::size_t i = 4; i < run.numbers.size(); i += 8) is_activated = is_activated || run.numbers[i] > 0.1;
  CHECK_EQUAL(is_activated, true);
  CHECK_EQUAL(engine.simulation(0).summary()->effort > 0.0, true);
  engine.set_low_level(std::make_shared<const TorqueLowLevel>());
  run_muscles(engine, 0, 5);
  CHECK_EQUAL(engine.simulation(0).summary()->effort, 0.0);
}

void threads_do_not_change_muscles(const TaskSpec& spec) {
  Engine reference(spec, 5, 1, 5);
  reference.set_low_level(kQp);
  const MuscleRun expected = run_muscles(reference, 0, 40);
  for (const int n_threads : {2, 5}) {
    Engine engine(spec, 5, n_threads, 5);
    engine.set_low_level(kQp);
    CHECK_EQUAL(run_muscles(engine, 0, 40) == expected, true);
  }
  Engine other_seed(spec, 5, 1, 6);
  other_seed.set_low_level(kQp);
  CHECK_EQUAL(run_muscles(other_seed, 0, 40) == expected, false);
}

void a_muscle_state_continues_exactly(const TaskSpec& spec) {
  for (const int cut : {1, 7, 19}) {
    Engine engine(spec, 1, 1, 5), other(spec, 1, 1, 99);
    engine.set_low_level(kQp);
    other.set_low_level(kQp);
    run_muscles(engine, 0, cut);
    other.simulation(0).set_state(engine.simulation(0).get_state());
    CHECK_EQUAL(other.simulation(0).get_state() == engine.simulation(0).get_state(), true);
    CHECK_EQUAL(run_muscles(other, cut, 40, true) == run_muscles(engine, cut, 40, true), true);
  }
}

void without_a_low_level_nothing_steps(const TaskSpec& spec) {
  Engine engine(spec, 1, 1, 5);
  const std::string message = message_of<NativeError>([&] { run_muscles(engine, 0, 1); });
  CHECK_EQUAL(message,
              "environment 0, step 0 of its episode: this environment is driven by a model's muscles and has none: load the "
              "model with HPPO and let it act here, or call set_muscles");
  engine.set_low_level(kQp);
  run_muscles(engine, 0, 1, true);  // the refusal has broken nothing
}

void end_to_end_and_torque_need_no_low_level(TaskSpec spec) {
  spec.muscles->actuation = Actuation::muscle_e2e;
  for (const Activation activation : {Activation::direct, Activation::excitation, Activation::inverted}) {
    spec.muscles->activation = activation;
    Engine engine(spec, 2, 2, 5);
    CHECK_EQUAL(engine.task().n_actions(), std::size_t{3});
    CHECK_EQUAL(engine.task().n_sample(), std::size_t{0});
    run_muscles(engine, 0, 7);  // ends with a positive action
    CHECK_EQUAL(engine.simulation(0).summary()->mean_activation > 0.0, true);
  }
  spec.muscles->actuation = Actuation::torque;
  Engine engine(spec, 2, 2, 5);
  CHECK_EQUAL(engine.task().n_actions(), std::size_t{1});
  run_muscles(engine, 0, 10);
  CHECK_EQUAL(engine.simulation(0).summary()->mean_activation, 0.0);
}

std::string muscle_refusal(TaskSpec spec, const std::function<void(MuscleSettings&)>& spoil) {
  spoil(*spec.muscles);
  return message_of<std::invalid_argument>([&] { Task task(spec); });
}

void wrong_muscles_are_refused(const TaskSpec& spec) {
  CHECK_EQUAL(muscle_refusal(spec, [](MuscleSettings& muscles) { muscles.dofs = {2}; }),
              "muscles: dofs: there is no degree of freedom 2");
  CHECK_EQUAL(muscle_refusal(spec, [](MuscleSettings& muscles) { muscles.dofs = {1}; }), "muscles: dofs: 1 follows another");
  CHECK_EQUAL(muscle_refusal(spec, [](MuscleSettings& muscles) { muscles.dofs = {}; }), "muscles: dofs: expected at least one");
  CHECK_EQUAL(muscle_refusal(spec, [](MuscleSettings& muscles) { muscles.damping = {1, 2}; }),
              "muscles: expected 1 numbers, one for each coordinate, got 2");
  CHECK_EQUAL(muscle_refusal(spec, [](MuscleSettings& muscles) { muscles.pattern = {0, 3}; }),
              "muscles: pattern: expected entries below 3, muscle by muscle, got 3");
  CHECK_EQUAL(muscle_refusal(spec, [](MuscleSettings& muscles) { muscles.pattern = {1, 0}; }),
              "muscles: pattern: expected entries below 3, muscle by muscle, got 0");
}

}  // namespace

void add_muscle_tests(std::map<std::string, std::function<void()>>& tests,
                      const std::function<std::string(const char*)>& compiled) {
  const auto add = [&](const char* name, void (*test)(TaskSpec)) {
    tests[name] = [=] { test(muscle_spec(compiled(kMuscledPendulum))); };
  };
  add("muscles: they move the body", [](TaskSpec spec) { muscles_move_the_body(spec); });
  add("muscles: threads change nothing", [](TaskSpec spec) { threads_do_not_change_muscles(spec); });
  add("muscles: a state continues exactly", [](TaskSpec spec) { a_muscle_state_continues_exactly(spec); });
  add("muscles: without a low level nothing steps", [](TaskSpec spec) { without_a_low_level_nothing_steps(spec); });
  add("muscles: end to end and torque need no low level", [](TaskSpec spec) { end_to_end_and_torque_need_no_low_level(spec); });
  add("muscles: wrong ones are refused", [](TaskSpec spec) { wrong_muscles_are_refused(spec); });
}

}  // namespace sb3_hrl::test
