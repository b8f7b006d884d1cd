"""
Gymnasium's MuJoCo tasks run natively, bit for bit: from the same state and with the same actions, observations, rewards,
infos and ends of episodes are equal. Gymnasium itself is the oracle.
"""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TransformAction

from sb3_hrl.env_ids import MUSCLE_ENVS
from sb3_hrl.envs import Engine, Task, load_task, native_tasks
from sb3_hrl.envs.task import Term
from sb3_hrl.vec_env import NativeVecEnv

N_ENVS = 2
ASSETS = Path(gym.__file__).parent / "envs" / "mujoco" / "assets"

# Several non-default options for each task; each row is one environment. `max_episode_steps` is gymnasium.make's.
HUMANOID: list[dict[str, Any]] = [
    {"exclude_current_positions_from_observation": False, "include_cinert_in_observation": False, "frame_skip": 3},
    {"include_cvel_in_observation": False, "include_cfrc_ext_in_observation": False, "max_episode_steps": 70},
    {"include_qfrc_actuator_in_observation": False, "reset_noise_scale": 0.1, "ctrl_cost_weight": 0.37},
]
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "Ant-v5": [
        {"exclude_current_positions_from_observation": False, "ctrl_cost_weight": 0.137, "main_body": "aux_4"},
        {"include_cfrc_ext_in_observation": False, "terminate_when_unhealthy": False, "max_episode_steps": 90},
        {"contact_force_range": (-0.5, 40.0), "contact_cost_weight": 0.013, "healthy_z_range": (0.4, 0.9), "frame_skip": 3},
        {"forward_reward_weight": 1.7, "healthy_reward": -0.3, "reset_noise_scale": 0.3, "main_body": 3},
    ],
    "HalfCheetah-v5": [
        {"exclude_current_positions_from_observation": False, "ctrl_cost_weight": 0.123, "forward_reward_weight": 1.3},
        {"frame_skip": 2, "reset_noise_scale": 0.5, "max_episode_steps": 60},
        {"ctrl_cost_weight": 3, "forward_reward_weight": np.float64(0.7)},
    ],
    "Hopper-v5": [
        {"exclude_current_positions_from_observation": False, "terminate_when_unhealthy": False, "max_episode_steps": 80},
        {"healthy_state_range": (-2.0, 2.0), "healthy_z_range": (0.1, 5.0), "healthy_angle_range": (-1.0, 1.0)},
        {"frame_skip": 7, "ctrl_cost_weight": np.float64(0.037), "healthy_reward": 0.3, "reset_noise_scale": 0.05},
    ],
    "Humanoid-v5": [
        *HUMANOID,
        {"terminate_when_unhealthy": False, "contact_cost_weight": 1e-3, "contact_cost_range": (-np.inf, 2.0)},
        {"healthy_z_range": (1.3, 1.45), "healthy_reward": 3.3, "forward_reward_weight": 0.77},
    ],
    "HumanoidStandup-v5": [*HUMANOID, {"impact_cost_weight": 1e-4, "impact_cost_range": (1e-3, 0.5), "uph_cost_weight": 3}],
    "InvertedDoublePendulum-v5": [{"healthy_reward": 7.7, "frame_skip": 3}, {"reset_noise_scale": 0.02}],
    "InvertedPendulum-v5": [{"frame_skip": 1, "reset_noise_scale": 0.05}, {"max_episode_steps": 4}],
    "Pusher-v5": [
        {"reward_near_weight": 0.3, "reward_dist_weight": 1.1, "reward_control_weight": 0.017},
        {"frame_skip": 2, "reward_control_weight": 2},
    ],
    "Reacher-v5": [{"reward_dist_weight": 1.3, "reward_control_weight": 0.07}, {"frame_skip": 5}],
    "Swimmer-v5": [
        {"exclude_current_positions_from_observation": False, "ctrl_cost_weight": 0.17},
        {"frame_skip": 9, "reset_noise_scale": 0.7, "forward_reward_weight": 2, "max_episode_steps": 50},
    ],
    "Walker2d-v5": [
        {"exclude_current_positions_from_observation": False, "terminate_when_unhealthy": False, "max_episode_steps": 80},
        {"healthy_z_range": (0.9, 1.5), "healthy_angle_range": (-0.3, 0.3), "ctrl_cost_weight": 0.013, "frame_skip": 2},
        {"xml_file": "walker2d.xml", "healthy_reward": 0.1, "forward_reward_weight": 1.9, "reset_noise_scale": 0.02},
    ],
}
CASES = [(env_id, options) for env_id in OPTIONS for options in [{}, *OPTIONS[env_id]]]


@pytest.fixture(autouse=True)
def _gymnasium_s_own_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """rl_zoo3, once another test has imported it, replaces gymnasium's TimeLimit by one that reports other flags."""
    time_limit = gym.wrappers.TimeLimit
    if time_limit.__module__ == "rl_zoo3.gym_patches":
        monkeypatch.setattr(gym.wrappers, "TimeLimit", time_limit.__base__)


def case_name(case: Any) -> str:
    return case.removesuffix("-v5") if isinstance(case, str) else "+".join(case) or "default"


def make_task(env_id: str, options: dict[str, Any]) -> Task:
    options = dict(options)
    return load_task(env_id, max_episode_steps=options.pop("max_episode_steps", None), options=options)


def put(engine: Engine, index: int, env: gym.Env) -> np.ndarray:
    data: Any = env.get_wrapper_attr("data")
    return engine.set_qpos_qvel(index, data.qpos.copy(), data.qvel.copy())


class Comparison(NamedTuple):
    """What was not equal, by name, and how episodes ended."""

    different: set[str]
    n_terminated: int
    n_truncated: int


def compare(env_id: str, options: dict[str, Any], n_steps: int, task: Task | None = None, seed: int = 0) -> Comparison:
    """Step gymnasium's environments and the engine side by side."""
    task = task or make_task(env_id, options)
    envs = [gym.make(env_id, **options) for _ in range(N_ENVS)]
    engine = Engine(task, N_ENVS, n_threads=2)
    engine.reset()
    different = set()
    n_terminated = n_truncated = 0
    for index, env in enumerate(envs):
        expected_obs, _ = env.reset(seed=seed + index)
        if not np.array_equal(put(engine, index, env), expected_obs):
            different.add("first obs")
    rng = np.random.default_rng(seed)
    low, high = task.action_space.low, task.action_space.high
    for _ in range(n_steps):
        actions = rng.uniform(low, high, (N_ENVS, engine.n_actions)).astype(np.float32)
        result = engine.step(actions)
        assert not result.unstable.any()
        for index, env in enumerate(envs):
            obs, reward, terminated, truncated, info = env.step(actions[index])
            native_obs = result.terminal_obs if terminated or truncated else result.obs
            native_info = task.info(result.infos[index])
            pairs = {
                "obs": (native_obs[index], obs),
                "reward": (result.rewards[index], reward),
                "terminated": (result.terminated[index], terminated),
                "truncated": (result.truncated[index], truncated),
                "info keys": (list(native_info), list(info)),
                **{key: (native_info.get(key), info[key]) for key in info},
            }
            different |= {name for name, (here, there) in pairs.items() if not np.array_equal(here, there)}
            n_terminated += terminated
            n_truncated += truncated
            if terminated or truncated:
                expected_obs, _ = env.reset()
                if not np.array_equal(put(engine, index, env), expected_obs):
                    different.add("first obs")
    return Comparison(different, n_terminated, n_truncated)


def test_all_tasks_are_native():
    module = "gymnasium.envs.mujoco."
    v5 = {spec.id for spec in gym.registry.values() if str(spec.entry_point).startswith(module) and spec.version == 5}
    assert set(native_tasks()) - set(MUSCLE_ENVS) == set(OPTIONS) == v5
    assert len(v5) == 11


@pytest.mark.parametrize(("env_id", "options"), CASES, ids=case_name)
def test_equal(env_id, options):
    n_steps = 100 if "Humanoid" in env_id else 200
    result = compare(env_id, options, n_steps)
    assert result.different == set()
    assert result.n_truncated > 0 or options.get("max_episode_steps", n_steps + 1) > n_steps or result.n_terminated > 0


@pytest.mark.parametrize("env_id", OPTIONS)
def test_equal_over_whole_episodes(env_id):
    """With the default options; what never ends by itself ends by its time limit."""
    limit = make_task(env_id, {}).max_episode_steps
    assert limit is not None
    assert limit == gym.spec(env_id).max_episode_steps
    never_terminates = env_id in ("HalfCheetah-v5", "HumanoidStandup-v5", "Pusher-v5", "Reacher-v5", "Swimmer-v5")
    result = compare(env_id, {}, limit + 1 if never_terminates else 300, seed=7)
    assert result.different == set()
    assert result.n_truncated >= N_ENVS if never_terminates else result.n_terminated >= N_ENVS


@pytest.mark.parametrize(("env_id", "options"), CASES, ids=case_name)
def test_spaces_and_metadata_are_gymnasiums(env_id, options):
    env = gym.make(env_id, **options)
    task = make_task(env_id, options)
    assert task.observation_space == env.observation_space
    assert task.action_space == env.action_space
    assert (task.action_space.dtype, task.observation_space.dtype) == (np.float32, np.float64)
    assert task.dt == env.get_wrapper_attr("dt")
    assert task.frame_skip == env.get_wrapper_attr("frame_skip")
    assert dict(task.metadata) == env.metadata
    assert env.spec is not None
    assert task.max_episode_steps == env.spec.max_episode_steps
    assert str(task.model_path) == env.get_wrapper_attr("fullpath")


def test_reset_infos_are_gymnasiums():
    for env_id in OPTIONS:
        env = gym.make(env_id)
        task = make_task(env_id, {})
        engine = Engine(task, 1)
        _, reset_infos = engine.reset(seeds=[3])
        env.reset(seed=0)
        unwrapped: Any = env.unwrapped
        unwrapped.set_state(*engine.qpos_qvel(0))
        expected = unwrapped._get_reset_info()
        native_info = task.reset_info(reset_infos[0])
        assert list(native_info) == list(expected)
        for key, value in expected.items():
            assert np.array_equal(native_info[key], value), key


def test_both_flags_at_once():
    env_id = "InvertedPendulum-v5"
    engine = Engine(load_task(env_id, max_episode_steps=5), 1)
    engine.reset()
    env = gym.make(env_id, max_episode_steps=5)
    env.reset(seed=0)
    qpos, qvel = np.array([0.0, 0.15]), np.zeros(2)
    for angle in np.linspace(0.1, 0.2, 50):  # somewhere it falls in the very step of the limit
        qpos[1] = angle
        env.reset()
        env.unwrapped.set_state(qpos, qvel)  # type: ignore[attr-defined]
        engine.set_qpos_qvel(0, qpos, qvel)
        flags = []
        for _ in range(5):
            result = engine.step(np.zeros((1, 1), np.float32))
            *_, terminated, truncated, _ = env.step(np.zeros(1, np.float32))
            assert (result.terminated[0], result.truncated[0]) == (terminated, truncated)
            flags.append((terminated, truncated))
            if terminated or truncated:
                break
        if flags[-1] == (True, True):
            return
    pytest.fail("both flags never coincided")


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Humanoid-v5"])
def test_a_model_of_ones_own(env_id, tmp_path):
    """Another timestep, by a path; both sides read the same file."""
    source = ASSETS / {"HalfCheetah-v5": "half_cheetah.xml", "Humanoid-v5": "humanoid.xml"}[env_id]
    model = tmp_path / "mine.xml"
    text = source.read_text()
    for theirs, ours in (('timestep="0.01"', 'timestep="0.008"'), ('timestep="0.003"', 'timestep="0.002"')):
        text = text.replace(theirs, ours)
    model.write_text(text)
    assert model.read_text() != source.read_text()
    assert compare(env_id, {"xml_file": str(model)}, 60).different == set()
    # The test sees which model is used.
    assert compare(env_id, {"xml_file": str(model)}, 10, task=make_task(env_id, {})).different >= {"obs", "reward"}


# --- what would make these tests fail ------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Reacher-v5"])
def test_another_frame_skip_is_seen(env_id):
    default = make_task(env_id, {})
    other = make_task(env_id, {"frame_skip": default.frame_skip + 1})
    assert {"obs", "reward"} <= compare(env_id, {}, 10, task=other).different


def with_value(task: Task, index: int, **changes: Any) -> Task:
    values = list(task.spec.values)
    values[index] = Term(values[index].term, values[index].arguments | changes)
    return dataclasses.replace(task, spec=task.spec._replace(values=tuple(values)))


def position_of(task: Task, key: str) -> int:
    return next(info.position for info in task.spec.info if info.key == key)


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Walker2d-v5", "Pusher-v5"])
def test_the_precision_of_the_control_cost_is_seen(env_id):
    task = make_task(env_id, {})
    position = position_of(task, "reward_ctrl")
    is_single = task.spec.values[position].arguments["is_single"][0]
    assert is_single == float(np.result_type(0.1 * np.float32(1)) == np.float32)  # NumPy 1 and 2 differ in this
    other = with_value(task, position, is_single=[1.0 - is_single])
    assert {"reward_ctrl", "reward"} <= compare(env_id, {}, 100, task=other).different


@pytest.mark.parametrize("env_id", ["Swimmer-v5", "Reacher-v5"])
def test_the_rounding_of_a_norm_is_seen(env_id):
    task = make_task(env_id, {})
    other = dataclasses.replace(task, spec=task.spec._replace(norm_order=0 if task.spec.norm_order == 1 else 1))
    assert {"distance_from_origin", "reward_dist"} & compare(env_id, {}, 200, task=other).different


@pytest.mark.parametrize(("env_id", "field"), [("Ant-v5", "cfrc_ext"), ("Humanoid-v5", "ctrl")])
def test_a_plain_sum_would_be_seen(env_id, field):
    """The terms are equal above; here a sum from left to right differs from gymnasium's on the same numbers."""
    options: dict[str, Any] = {"contact_force_range": (-1e9, 1e9)} if env_id == "Ant-v5" else {}
    env = gym.make(env_id, **options)
    env.reset(seed=0)
    env.action_space.seed(0)
    n_different = 0
    for _ in range(60):
        *_, terminated, truncated, info = env.step(env.action_space.sample())
        squares = np.square(getattr(env.unwrapped.data, field)).ravel()  # type: ignore[attr-defined]
        plain = 0.0
        for square in squares.tolist():
            plain += square
        weight, key = (5e-4, "reward_contact") if env_id == "Ant-v5" else (0.1, "reward_ctrl")
        n_different += -(weight * plain) != info[key]
        if terminated or truncated:
            env.reset()
    assert n_different > 0


def test_a_product_instead_of_a_power_would_be_seen():
    """InvertedDoublePendulum squares NumPy scalars with ``**``, which is libm's pow."""
    numbers = np.random.default_rng(0).uniform(-10, 10, 100_000)
    assert any(number**2 != number * number for number in numbers)


@pytest.mark.parametrize("env_id", ["Ant-v5", "Humanoid-v5"])
def test_the_lag_of_positions_is_seen(env_id):
    """The velocity comes from positions that lag one substep behind: from qpos alone the first one would be another."""
    task = make_task(env_id, {})
    engine = Engine(task, 2, seeds=[5, 5])
    engine.reset()
    actions = np.full((2, engine.n_actions), 0.1, np.float32)
    engine.step(actions)
    engine.set_qpos_qvel(1, *engine.qpos_qvel(0))  # the same state for MuJoCo, but not for the task
    infos = engine.step(actions).infos
    assert task.info(infos[0])["x_velocity"] != task.info(infos[1])["x_velocity"]


def test_listed_actions_are_those_of_a_wrapper(tmp_path: Path) -> None:
    """The VecEnv of a task that lists its actions, and gymnasium's environment in a wrapper with the same list."""
    controls = np.array([[1, 1, 1], [-1, -1, -1], [0, 0.5, -0.5]], np.float32)
    file = tmp_path / "bang_bang.yaml"
    file.write_text(f"actions: {controls.tolist()}\n" + native_tasks()["Hopper-v5"].read_text())
    venv = NativeVecEnv(str(file), n_envs=2)
    assert venv.action_space == spaces.Discrete(3)
    twins = [TransformAction(gym.make("Hopper-v5"), controls.__getitem__, venv.action_space) for _ in range(2)]
    venv.reset()
    for index, twin in enumerate(twins):
        twin.reset(seed=index)
        put(venv._engine, index, twin)
    rng = np.random.default_rng(0)
    n_ended = 0
    for _ in range(200):
        actions = rng.integers(3, size=2)
        obs, rewards, dones, infos = venv.step(actions)
        for index, twin in enumerate(twins):
            expected_obs, reward, terminated, truncated, info = twin.step(actions[index])
            here = infos[index]["terminal_observation"] if dones[index] else obs[index]  # type: ignore[index]
            assert np.array_equal(here, expected_obs)
            assert rewards[index] == np.float32(reward)
            assert dones[index] == (terminated or truncated)
            assert infos[index].items() >= info.items()
            if dones[index]:
                n_ended += 1
                twin.reset()
                put(venv._engine, index, twin)
    assert n_ended > 5
    with pytest.raises(AttributeError, match="is a task file: it has no gymnasium environment to look at"):
        venv.get_attr("data")
    venv.close()
