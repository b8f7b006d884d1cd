"""The bodies with muscles: what they are, what their tasks promise, and tasks of one's own."""

import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_of_sb3
from stable_baselines3.common.env_util import make_vec_env

from sb3_hrl import native
from sb3_hrl.env_ids import MUSCLE_ENVS
from sb3_hrl.envs import Engine, TaskError, load_task
from sb3_hrl.envs.muscle_env import MuscleEnv
from sb3_hrl.envs.task import ASSETS, known_terms
from sb3_hrl.envs.terms import ARRAYS, RESETS, VALUES
from sb3_hrl.errors import NativeError
from sb3_hrl.muscle import MuscleInterface, QpLowLevel
from sb3_hrl.vec_env import NativeVecEnv
from sb3_hrl.vec_env.recipe import read_recipe
from tests.conftest import require_env

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "elbow.yaml"


def model_of(name: str) -> Any:
    return mujoco.MjModel.from_xml_path(str(ASSETS / name))


def unwrapped(env: gym.Env) -> Any:
    return env.unwrapped


# --- the bodies ----------------------------------------------------------------------------------------------------------


def test_the_walker_is_the_one_of_its_tables():
    model = model_of("muscle_walker.xml")
    assert (model.nv, model.nu) == (9, 14)
    assert mujoco.mj_getTotalmass(model) == pytest.approx(80.0)
    interface = MuscleInterface(model)
    assert interface.n_coords == 6
    assert interface.identity_error < 1e-9
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    state = interface.read(data)
    assert state.torque_high.round().tolist() == [200, 157, 27] * 2
    assert state.torque_low.round().tolist() == [-284, -70, -255] * 2


def test_the_arm_is_the_one_of_its_table():
    model = model_of("muscle_arm.xml")
    interface = MuscleInterface(model)
    assert (model.nv, interface.n_muscles, interface.n_coords) == (2, 6, 2)
    assert interface.identity_error < 1e-9
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    arms = np.stack([data.actuator(name).moment for name in interface.muscle_names])
    expected = [(536, 0), (-536, 0), (0, 316), (0, -267), (386, 427), (-388, -300)]
    assert (-arms * 1e4).round(6).tolist() == [list(pair) for pair in expected]
    # No muscle is beyond its curve anywhere in the joints' ranges.
    for corner in np.array(np.meshgrid(*interface.model.jnt_range)).reshape(2, -1).T:
        data.qpos[:] = corner
        mujoco.mj_forward(model, data)
        state = interface.read(data)
        assert (state.torque_high > 9).all()
        assert (state.torque_low < -9).all()


@pytest.mark.parametrize("name", ["muscle_arm", "muscle_walker"])
def test_every_body_says_where_its_numbers_come_from(name):
    text = (ASSETS / f"{name}.md").read_text()
    assert "parameterised after" in text
    assert "not a replication" in text
    if name == "muscle_walker":
        for muscle in range(7):
            assert f"| {model_of('muscle_walker.xml').actuator(muscle).name.removeprefix('right_')} (" in text


def test_a_falling_walker_comes_to_rest():
    model = model_of("muscle_walker.xml")
    data = mujoco.MjData(model)
    data.qpos[1] += 0.1
    fastest = 0.0
    for _ in range(3000):
        mujoco.mj_step(model, data)
        fastest = max(fastest, np.abs(data.qvel).max())
    assert fastest < 30
    assert np.abs(data.qvel).max() < 0.5
    assert not any(warning.number for warning in data.warning)


@pytest.mark.parametrize("low_level", ["TorqueLowLevel", "QpLowLevel"])
def test_the_walker_stands_with_constant_targets(low_level):
    core = native.load()
    chosen = core.TorqueLowLevel() if low_level == "TorqueLowLevel" else core.QpLowLevel(100.0, 1e-4)
    ends = []
    for stiffness in (1000.0, 300.0):
        engine = Engine(load_task("MuscleWalkerStand-v0", {"stiffness": stiffness}), 1, seeds=[0])
        engine.set_low_level(chosen)
        engine.reset()
        ends.append(any(engine.step(np.zeros((1, 6), np.float32)).terminated[0] for _ in range(150)))
    assert ends == [False, True]  # three seconds; a soft one falls


# --- the environments ----------------------------------------------------------------------------------------------------


# Gymnasium says it of its own MuJoCo environments, too. Activations are from 0 to 1; SB3 would rather have -1 to 1.
@pytest.mark.filterwarnings("ignore:.*A Box observation space (min|max)imum value is -?infinity")
@pytest.mark.filterwarnings("ignore:We recommend you to use a symmetric and normalized Box action space")
@pytest.mark.parametrize("actuation", ["muscle_hrl", "muscle_e2e", "torque"])
@pytest.mark.parametrize("env_id", MUSCLE_ENVS)
def test_checkers_have_nothing_to_say(env_id, actuation):
    require_env(env_id)
    env = gym.make(env_id, actuation=actuation)
    if actuation == "muscle_hrl":
        unwrapped(env).set_muscles(QpLowLevel())
    check_env(env.unwrapped, skip_render_check=True)
    check_env_of_sb3(env, skip_render_check=True)


def test_sizes():
    assert load_task("MuscleArmReach-v0").observation_space.shape == (16,)
    for name in ("Stand", "Walk", "Speed"):
        task = load_task(f"MuscleWalker{name}-v0")
        assert (task.observation_space.shape, task.max_episode_steps, task.dt) == ((42,), 1000, 0.02)
    sizes = {"muscle_hrl": ((6,), -1), "muscle_e2e": ((14,), 0), "torque": ((6,), -1)}
    for actuation, (shape, low) in sizes.items():
        space = load_task("MuscleWalkerWalk-v0", {"actuation": actuation}).action_space
        assert (space.shape, space.low.max(), space.high.max()) == (shape, low, 1)
    space = load_task("MuscleWalkerWalk-v0", {"has_cascade": True}).action_space
    assert space.shape == (7,)


def test_registered_limits_are_those_of_the_files():
    require_env("MyoElbowPose-v0")
    for env_id, (file, limit) in MUSCLE_ENVS.items():
        task = load_task(env_id)
        assert (task.id, task.path.name) == (env_id, file)
        assert limit in (task.max_episode_steps, None)
        assert pickle.loads(pickle.dumps(task)) == task


def test_without_muscles_it_refuses_to_step():
    env = gym.make("MuscleArmReach-v0")
    env.reset(seed=0)
    with pytest.raises(NativeError, match="is driven by a model's muscles and has none"):
        env.step(np.zeros(2, np.float32))


def test_targets_can_be_reached_and_differ():
    env = gym.make("MuscleArmReach-v0")
    targets = []
    for seed in range(200):
        obs, _ = env.reset(seed=seed)
        targets.append(obs[6:8])
        assert np.array_equal(unwrapped(env).data.body("target").xpos[:2], obs[6:8])
        assert np.allclose(obs[8:10], obs[6:8] - obs[4:6])
    points = np.array(targets)
    assert len(np.unique(points, axis=0)) == 200
    assert np.linalg.norm(points, axis=1).max() < 0.65
    assert points.std(axis=0).min() > 0.1


def test_success_is_half_a_second_within_two_centimetres():
    """The joint angles of the target are found by search, and held."""
    env = gym.make("MuscleArmReach-v0")
    unwrapped(env).set_muscles(QpLowLevel())
    obs, _ = env.reset(seed=1)
    elbow = np.arccos((obs[6:8] @ obs[6:8] - 0.31**2 - 0.34**2) / (2 * 0.31 * 0.34))
    shoulder = np.arctan2(obs[7], obs[6]) - np.arctan2(0.34 * np.sin(elbow), 0.31 + 0.34 * np.cos(elbow))
    settings = unwrapped(env).task.muscles
    action = (np.array([shoulder, elbow]) - settings.nominal) / settings.scale
    near, success = [], []
    for _ in range(150):
        *_, truncated, info = env.step(action.astype(np.float32))
        near.append(info["distance"] < 0.02)
        success.append(info["is_success"])
    assert truncated
    assert success[-1] == 1
    first = success.index(1)
    assert all(near[first - 24 : first + 1])
    assert not near[first - 25]


def test_the_reward_of_the_walker():
    env = gym.make("MuscleWalkerWalk-v0", actuation="muscle_e2e")
    obs, reset_info = env.reset(seed=0)
    assert obs[23] == reset_info["target_speed"] == 1.25
    mean = 1.25
    for _ in range(10):
        x = unwrapped(env).data.qpos[0]
        obs, reward, _, _, info = env.step(np.full(14, 0.1, np.float32))
        speed = (unwrapped(env).data.qpos[0] - x) / 0.02
        mean += 0.02 / 1.1 * (speed - mean)
        assert info["mean_speed"] == pytest.approx(mean)
        assert info["effort"] == pytest.approx(0.01)
        terms = [
            np.exp(-((mean - 1.25) ** 2)),
            0.1 * np.exp(-10 * obs[1] ** 2),
            0.1,
            -0.1 * 0.01,
            info["reward_limits"],
        ]
        assert reward == pytest.approx(sum(terms))


def test_why_an_episode_of_the_walker_ends():
    env = unwrapped(gym.make("MuscleWalkerStand-v0", actuation="muscle_e2e"))
    env.reset(seed=0)
    qpos = env.data.qpos.copy()
    for at, number, reason in ((1, 0.7, 1), (2, 0.9, 2), (2, -0.9, 2)):
        fallen = qpos.copy()
        fallen[3:] = [1.0, 2.2, 0.0] * 2  # the feet in the air
        fallen[at] = number
        env.set_state(fallen, np.zeros(9))
        *_, terminated, truncated, info = env.step(np.zeros(14, np.float32))
        assert (terminated, truncated, info["terminal_reason"]) == (True, False, reason)
    env.set_state(qpos, np.zeros(9))
    *_, terminated, _, info = env.step(np.zeros(14, np.float32))
    assert (terminated, info["terminal_reason"]) == (False, 0)


def test_beyond_its_ranges_a_joint_costs():
    env = unwrapped(gym.make("MuscleWalkerStand-v0", actuation="muscle_e2e", limit_weight=2.0))
    env.reset(seed=0)
    qpos = env.data.qpos.copy()
    qpos[1], qpos[4] = 1.3, -0.3  # in the air, a knee bent backwards
    env.set_state(qpos, np.zeros(9))
    *_, info = env.step(np.zeros(14, np.float32))
    beyond = np.deg2rad(5) - env.data.qpos[4]
    assert beyond > 0.05
    assert info["reward_limits"] == pytest.approx(-2 * beyond)


@pytest.mark.parametrize(
    ("env_id", "weight", "sharpness"), [("MuscleWalkerWalk-v0", 1.0, 1.0), ("MuscleWalkerSpeed-v0", 2.0, 5.0)]
)
def test_the_wanted_speed_earns_most(env_id, weight, sharpness):
    env = gym.make(env_id, actuation="muscle_e2e", target_speed=(1.6, 1.6))
    env.reset(seed=0)
    for _ in range(5):
        *_, info = env.step(np.zeros(14, np.float32))
    error = info["mean_speed"] - 1.6
    assert abs(error) > 0.02
    assert info["reward_speed"] == pytest.approx(weight * np.exp(-sharpness * error**2), rel=1e-12)


def test_speeds_are_drawn_from_their_range():
    engine = Engine(load_task("MuscleWalkerSpeed-v0"), 100, seeds=range(100))
    obs, infos = engine.reset()
    speeds = obs[:, 23]
    assert 0.8 <= speeds.min() < 0.85
    assert 1.55 < speeds.max() < 1.6
    assert np.array_equal(infos[:, 1], speeds)
    # Half of them begin with each leg, and the clock knows which.
    assert 30 < (obs[:, 2] > obs[:, 5]).sum() < 70
    assert np.allclose(obs[:, 22], np.where(obs[:, 2] > obs[:, 5], 1.0, -1.0))


# --- VecEnvs and pictures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["MuscleArmReach-v0", "MuscleWalkerSpeed-v0"])
def test_the_native_vec_env_shows_the_simulation(env_id, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "egl")
    venv = NativeVecEnv(env_id, 2, {"actuation": "muscle_e2e", "render_mode": "rgb_array"})
    venv.seed(1)
    venv.reset()
    for _ in range(3):
        obs = venv.step(np.full((2, venv.task.action_space.shape[0]), 0.2, np.float32))[0]
    twin = unwrapped(venv.get_attr("twin", 1)[0])
    assert np.array_equal(twin.data.qpos, venv._engine.qpos_qvel(1)[0])
    if env_id == "MuscleArmReach-v0":
        assert np.array_equal(twin.data.body("target").xpos[:2], np.asarray(obs)[1, 6:8])
    first, second = map(np.asarray, venv.get_images())
    assert first.shape == second.shape == (480, 480, 3)
    assert not np.array_equal(first, second)
    venv.close()


def test_a_vec_env_of_the_zoo_has_its_native_form():
    for env_id, kwargs in (("MuscleArmReach-v0", {}), ("MuscleEnv-v0", {"env_file": str(EXAMPLE)})):
        venv = make_vec_env(env_id, 2, env_kwargs=kwargs, monitor_kwargs={})
        recipe = read_recipe(venv)
        venv.close()
        native_env = NativeVecEnv(**recipe._asdict())
        assert native_env.observation_space == venv.observation_space
        assert native_env.action_space == venv.action_space
        native_env.close()


# --- a body and a task of one's own --------------------------------------------------------------------------------------


def test_the_example_runs_in_both():
    env = gym.make("MuscleEnv-v0", env_file=str(EXAMPLE), actuation="muscle_e2e")
    engine = Engine(load_task("MuscleEnv-v0", {"env_file": str(EXAMPLE), "actuation": "muscle_e2e"}), 1, seeds=[2])
    obs, _ = env.reset(seed=2)
    assert np.array_equal(obs, engine.reset()[0][0])
    action = np.array([0.5, 0.1], np.float32)
    n_steps, truncated = 0, False
    while not truncated:
        obs, reward, _, truncated, _ = env.step(action)
        result = engine.step(action[None])
        n_steps += 1
        assert (reward, truncated) == (result.rewards[0], result.truncated[0])
    assert n_steps == 100  # the file's limit


@pytest.mark.parametrize("actuation", ["muscle_e2e", "torque"])
def test_listed_actions_are_the_same_in_both(tmp_path, actuation):
    rows = [[0.5, 0.1], [0.0, 1.0], [0.2, 0.2]] if actuation == "muscle_e2e" else [[1.0], [-1.0], [0.5]]
    (tmp_path / "elbow.xml").write_bytes(EXAMPLE.with_suffix(".xml").read_bytes())
    path = tmp_path / "listed.yaml"
    path.write_text(f"{EXAMPLE.read_text()}\nactions: {rows}\n")
    options: dict[str, Any] = {"env_file": str(path), "actuation": actuation}
    env, engine = gym.make("MuscleEnv-v0", **options), Engine(load_task("MuscleEnv-v0", options), 1, seeds=[2])
    assert env.action_space == spaces.Discrete(3)
    assert np.array_equal(env.reset(seed=2)[0], engine.reset()[0][0])
    for action in (2, 0, 1, 2):
        obs, reward, *_ = env.step(action)
        result = engine.step(np.array([action]))
        assert np.array_equal(obs, result.obs[0])
        assert reward == result.rewards[0]


def test_an_actuator_of_two_controls_has_one_force(tmp_path):
    (tmp_path / "pid.xml").write_text(
        '<mujoco><worldbody><body><joint name="hinge" axis="0 1 0" damping="1"/><geom size="0.1" pos="0.3 0 0"/></body>'
        '</worldbody><actuator><pid joint="hinge" kp="20" kv="3" input="pos vel" posrange="-1 1" velrange="-2 2"/></actuator>'
        "</mujoco>"
    )
    (tmp_path / "pid.yaml").write_text(
        "id: Pid-v0\nmax_episode_steps: 9\nmodel: pid.xml\nframe_skip: 2\nvalues: {angle: {term: qpos, index: 0}}\n"
        "reward: [angle]\nobservation: [{term: qpos}, {term: actuator_force}]\n"
    )
    options: dict[str, Any] = {"env_file": str(tmp_path / "pid.yaml")}
    env, engine = gym.make("MuscleEnv-v0", **options), Engine(load_task("MuscleEnv-v0", options), 1, seeds=[0])
    env.reset(seed=0)
    engine.reset()
    action = np.array([0.5, 0.2], np.float32)
    obs, result = env.step(action)[0], engine.step(action[None])
    assert obs.shape == (2,)
    assert obs[1] > 0
    assert np.array_equal(obs, result.obs[0])


def test_a_bare_model_gets_the_default_task():
    model = EXAMPLE.with_suffix(".xml")
    env = MuscleEnv(env_file=str(model), actuation="torque", frame_skip=5)
    assert env.task.model_path == model
    assert (env.observation_space.shape, env.action_space.shape, env.dt) == ((5,), (1,), 0.01)
    env.reset(seed=0)
    *_, info = env.step(np.ones(1, np.float32))
    assert info["reward_effort"] == -1


SECTION = """\
id: Mine-v0
model: muscle_arm.xml
options:
  actuation: torque
muscles:
  actuation: $actuation
  joints: [shoulder, elbow]
  scale: [1.0, 0.5]
memory: [wish]
observation:
  - {term: qpos}
  - {term: memory, of: wish}
values:
  effort: {term: effort}
  wish: {term: memory, of: wish}
reward: effort
reset:
  - {term: memory_uniform, of: wish, range: [1, 2]}
info: [wish]
reset_info: [wish]
marker: {site: fingertip, joint: elbow, angle: wish}
"""
# (what is written instead of what, line, the message)
WRONG = [
    ("  scale: [1.0", "  scales: [1.0", 8, "muscles.scales: unknown key, did you mean 'scale'?"),
    ("$actuation", "$actuaton", 6, "muscles.actuation: there is no option 'actuaton', did you mean 'actuation'?"),
    (
        "$actuation",
        "torqe",
        6,
        "muscles.actuation: expected muscle_hrl, muscle_e2e, torque, got 'torqe', did you mean 'torque'?",
    ),
    (
        "shoulder, elbow]",
        "shoulder, elbw]",
        7,
        "muscles.joints: the model has no joint 'elbw', did you mean 'elbow'? It has: shoulder, elbow",
    ),
    ("[1.0, 0.5]", "[1.0]", 8, "muscles.scale: expected one number, or 2 (for shoulder, elbow), got 1"),
    ("muscle_arm.xml", "hopper.xml", 5, "muscles: the model has no muscles: its 3 actuators are of other kinds"),
    (
        "of: wish}\nvalues",
        "of: wihs}\nvalues",
        12,
        "observation[1].of: expected a name of the task's memory, did you mean 'wish'?",
    ),
    ("memory: [wish]", "memory: [wish, wish]", 9, "memory[1]: expected a name made of letters, digits and _, each one once"),
    ("reset_info: [wish]", "reset_info: [effort]", 14, "values.effort.term: it needs a step"),
    ("angle: wish}", "angles: wish}", 21, "marker: expected the keys site, joint, angle, got {'angles': 'wish', "),
    ("angle: wish}", "angle: with}", 21, "marker.angle: expected a name of the task's memory, did you mean 'wish'?"),
    ("joint: elbow", "joint: elbw", 21, "marker.joint: the model has no joint of that name, did you mean 'elbow'?"),
    ("site: fingertip", "site: fingertips", 21, "marker.site: the model has no site of that name, did you mean 'fingertip'?"),
    ("id: Mine-v0", "extends: muscle_arm_reach.yaml", None, "these keys are missing: id"),
    ("id: Mine-v0", "id: Mine-v0\nextends: x.yaml", 3, "model: unknown key of a task that extends another"),
]


@pytest.mark.parametrize(("right", "wrong", "line", "message"), WRONG, ids=[row[3][:30] for row in WRONG])
def test_a_wrong_file_is_refused_with_file_line_and_key(tmp_path, right, wrong, line, message):
    path = tmp_path / "mine.yaml"
    path.write_text(SECTION)
    assert MuscleEnv(env_file=str(path)).reset(seed=0)[1]["wish"] > 1
    path.write_text(SECTION.replace(right, wrong))
    assert path.read_text() != SECTION
    with pytest.raises(TaskError) as caught:
        load_task("MuscleEnv-v0", {"env_file": str(path)})
    place = f"{path}:{line}: " if line else f"{path}: "
    assert any(text.startswith(place + message) for text in str(caught.value).splitlines()), str(caught.value)


def test_terms_of_muscles_need_muscles(tmp_path):
    path = tmp_path / "mine.yaml"
    start, stop = SECTION.index("muscles:\n"), SECTION.index("memory:")
    path.write_text(SECTION[:start] + SECTION[stop:])
    with pytest.raises(TaskError, match=r"mine.yaml:10: values.effort.term: only a task with muscles has it"):
        load_task(path)


def test_a_variant(tmp_path):
    path = tmp_path / "slow.yaml"
    text = "id: Slow-v0\nextends: muscle_walker_walk.yaml\nmax_episode_steps: 7\noptions:\n  target_speed: [0.4, 0.5]\n"
    path.write_text(text)
    task = load_task("MuscleEnv-v0", {"env_file": str(path), "actuation": "torque"})
    assert (task.id, task.path, task.max_episode_steps) == ("Slow-v0", path, 7)
    assert task.options["target_speed"] == (0.4, 0.5)
    assert task.options["actuation"] == "torque"
    assert load_task(path, max_episode_steps=5).max_episode_steps == 5
    assert load_task(path, max_episode_steps=-1).max_episode_steps is None
    path.write_text(text.replace("max_episode_steps: 7\n", ""))
    assert load_task(path).max_episode_steps == 1000
    path.write_text(text.replace("target_speed", "target_sped"))
    with pytest.raises(
        TaskError, match=r"slow.yaml:5: options.target_sped: .* has no such option, did you mean 'target_speed'"
    ):
        load_task(path)
    path.write_text(text.replace("walk.yaml", "wlk.yaml"))
    with pytest.raises(TaskError, match=r"muscle_walker_wlk\.yaml: the task cannot be read"):
        load_task(path)


def test_only_bodies_with_muscles_have_an_env_file(tmp_path):
    with pytest.raises(TaskError, match="Hopper-v5 has no option 'env_file'"):
        load_task("Hopper-v5", {"env_file": "mine.yaml"})
    with pytest.raises(
        TaskError, match=r"env_file: expected a task \(.yaml\) or a model \(.xml, myo_sim:name\), got 'mine.json'"
    ):
        gym.make("MuscleEnv-v0", env_file="mine.json")
    with pytest.raises(TaskError, match=r"The model .*nothing.xml does not exist"):
        gym.make("MuscleEnv-v0", env_file=str(tmp_path / "nothing.xml"))
    with pytest.raises(TaskError, match="MuscleArmReach-v0 has no option 'stifness', did you mean 'stiffness'"):
        gym.make("MuscleArmReach-v0", stifness=3.0)


def test_every_native_term_has_a_readable_twin():
    known = known_terms()
    fields = {name for name in known["array"] if name not in ARRAYS}
    data = mujoco.MjData(model_of("muscle_arm.xml"))
    assert all(hasattr(data, name) for name in fields)
    assert set(known["value"]) == set(VALUES)
    assert set(known["reset"]) == set(RESETS)
