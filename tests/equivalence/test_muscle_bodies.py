"""
The bodies with muscles give the same numbers natively and in Python: from the same seed and with the same actions,
observations, rewards, infos and ends of episodes are equal to the last bit.
"""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from sb3_hrl import native
from sb3_hrl.carried import MUSCLE_SAMPLE
from sb3_hrl.env_ids import MUSCLE_ENVS
from sb3_hrl.envs import Engine, Task, load_task
from sb3_hrl.envs.muscle_env import MuscleEnv
from sb3_hrl.muscle import QpLowLevel, TorqueLowLevel
from sb3_hrl.wrappers import ActionHold
from tests.conftest import require_env

# (id, options, low level); the first rows have the defaults.
HRL: list[tuple[str, dict[str, Any], str]] = [(env_id, {}, "qp") for env_id in MUSCLE_ENVS]
CASES: list[tuple[str, dict[str, Any], str]] = [
    *HRL,
    ("MuscleArmReach-v0", {"activation": "excitation", "stiffness": 60.0, "target_part": (0.3, 0.7)}, "qp"),
    ("MuscleArmReach-v0", {"effort_weight": 0.3, "reach_reward": 2, "speed_weight": 0.0, "distance_weight": 3.0}, "torque"),
    ("MuscleArmReach-v0", {"actuation": "muscle_e2e", "activation": "excitation"}, ""),
    ("MuscleArmReach-v0", {"actuation": "torque"}, ""),
    ("MuscleWalkerStand-v0", {"stiffness": 1000.0, "reset_noise_scale": 0.1}, "torque"),
    ("MuscleWalkerStand-v0", {"actuation": "muscle_e2e"}, ""),
    ("MuscleWalkerWalk-v0", {"activation": "inverted", "target_speed": (0.3, 0.4), "starts_walking": False}, "qp"),
    ("MuscleWalkerWalk-v0", {"scale": 0.2, "speed_sharpness": 4.0, "alive_reward": 1.0, "limit_weight": 0.5}, "torque"),
    ("MuscleWalkerWalk-v0", {"actuation": "muscle_e2e", "effort_weight": 0.0, "upright_weight": 0.4}, ""),
    ("MuscleWalkerSpeed-v0", {"actuation": "torque", "speed_weight": 3.0}, ""),
    ("MyoElbowPose-v0", {"actuation": "muscle_e2e", "activation": "excitation", "effort_weight": 0.1, "pose_weight": 2.0}, ""),
    ("MyoElbowPose-v0", {"actuation": "torque", "target_range": (1.0, 1.5), "bonus": 1.0}, ""),
    ("MyoElbowPose-v0", {"activation": "inverted", "stiffness": 30.0, "tolerance": (-0.5, 0.5)}, "torque"),
    ("MuscleEnv-v0", {"xml_file": "muscle_walker.xml", "frame_skip": 4}, "qp"),
    ("MuscleEnv-v0", {"env_file": "muscle_walker_speed.yaml", "actuation": "torque"}, ""),
]


def case_name(case: Any) -> str:
    return case.removesuffix("-v0") if isinstance(case, str) else "+".join(map(str, case.values())) or "default"


@pytest.fixture(autouse=True)
def _gymnasium_s_own_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """rl_zoo3, once another test has imported it, replaces gymnasium's TimeLimit by one that reports other flags."""
    time_limit = gym.wrappers.TimeLimit
    if time_limit.__module__ == "rl_zoo3.gym_patches":
        monkeypatch.setattr(gym.wrappers, "TimeLimit", time_limit.__base__)


def make_pair(env_id: str, options: dict[str, Any], low_level: str, task: Task | None = None) -> tuple[gym.Env, Engine]:
    require_env(env_id)
    env = gym.make(env_id, **options)
    twin: Any = env.unwrapped
    engine = Engine(task or load_task(env_id, options), 1)
    if low_level:
        core = native.load()
        twin.set_muscles(QpLowLevel() if low_level == "qp" else TorqueLowLevel())
        engine.set_low_level(
            core.QpLowLevel(QpLowLevel().torque_scale, QpLowLevel().effort) if low_level == "qp" else core.TorqueLowLevel()
        )
    return env, engine


def compare(env: gym.Env, engine: Engine, n_steps: int, seed: int = 3, calm: float = 1.0) -> tuple[set[str], int, int]:
    """What was not equal, by name, and how many episodes were terminated and truncated."""
    task = engine.task
    different: set[str] = set()
    n_terminated = n_truncated = 0

    def check(**pairs: tuple[Any, Any]) -> None:
        different.update(name for name, (here, there) in pairs.items() if not np.array_equal(here, there))

    def check_reset(first: tuple[np.ndarray, dict[str, Any]], native_obs: np.ndarray, row: np.ndarray) -> None:
        info = task.reset_info(row)
        check(first_obs=(first[0], native_obs), reset_keys=(list(first[1]), list(info)))
        check(**{f"reset {key}": (number, info.get(key)) for key, number in first[1].items()})

    native_obs, rows = engine.reset(seeds=[seed])
    check_reset(env.reset(seed=seed), native_obs[0], rows[0])
    rng = np.random.default_rng(seed)
    for _ in range(n_steps):
        action = (calm * rng.uniform(task.action_space.low, task.action_space.high)).astype(np.float32)
        obs, reward, terminated, truncated, info = env.step(action)
        result = engine.step(action[None])
        native_info = task.info(result.infos[0])
        if engine.n_sample:
            native_info[MUSCLE_SAMPLE] = result.samples[0]
        is_over = terminated or truncated
        check(
            obs=(obs, (result.terminal_obs if is_over else result.obs)[0]),
            reward=(reward, result.rewards[0]),
            terminated=(terminated, result.terminated[0]),
            truncated=(truncated, result.truncated[0]),
            keys=(list(info), list(native_info)),
            **{key: (info[key], native_info.get(key)) for key in info},
        )
        n_terminated += terminated
        n_truncated += truncated
        if is_over:
            check_reset(env.reset(), result.obs[0], result.reset_infos[0])
    twin: Any = env.unwrapped
    check(physics=(twin.get_physics(), engine.physics(0)))
    return different, n_terminated, n_truncated


@pytest.mark.parametrize(("env_id", "options", "low_level"), CASES, ids=case_name)
def test_equal(env_id, options, low_level):
    assert compare(*make_pair(env_id, options, low_level), n_steps=60)[0] == set()


def test_equal_over_whole_episodes_of_the_arm():
    different, _, n_truncated = compare(*make_pair("MuscleArmReach-v0", {}, "qp"), n_steps=310)
    assert (different, n_truncated) == (set(), 2)


def test_equal_over_whole_episodes_of_the_elbow():
    different, _, n_truncated = compare(*make_pair("MyoElbowPose-v0", {}, "qp"), n_steps=210)
    assert (different, n_truncated) == (set(), 2)


@pytest.mark.parametrize("actuation", ["muscle_hrl", "torque"])
def test_equal_over_whole_episodes_of_the_walker(actuation):
    low_level = "qp" if actuation == "muscle_hrl" else ""
    pair = make_pair("MuscleWalkerSpeed-v0", {"actuation": actuation}, low_level)
    different, n_terminated, _ = compare(*pair, n_steps=250)
    assert different == set()
    assert n_terminated >= 2


def test_the_walker_s_time_limit():
    pair = make_pair("MuscleWalkerStand-v0", {"stiffness": 1000.0, "actuation": "muscle_hrl"}, "torque")
    different, n_terminated, n_truncated = compare(*pair, n_steps=1001, calm=0.0)
    assert (different, n_terminated, n_truncated) == (set(), 0, 1)


@pytest.mark.parametrize(
    "env_id", ["Hopper-v5", "Humanoid-v5", "Pusher-v5", "InvertedDoublePendulum-v5", "Ant-v5", "Reacher-v5"]
)
def test_gymnasium_s_tasks_have_the_same_twin(env_id):
    """Every term that a task can be made of has one."""
    file = load_task(env_id).path
    env = MuscleEnv(env_file=str(file))
    assert compare(env, Engine(load_task(file), 1), n_steps=40)[0] == set()


@pytest.mark.parametrize("env_id", ["MuscleArmReach-v0", "MuscleWalkerWalk-v0"])
def test_equal_under_a_hold(env_id):
    """A decision of three steps leaves the same sample; another stream of substeps would be seen in it, and nowhere else."""
    env, engine = make_pair(env_id, {}, "qp")
    held, twin = ActionHold(env, hold_seconds=0.06), env.unwrapped
    assert isinstance(twin, MuscleEnv)
    assert twin.control is not None
    for control_seed, n_different in ((3, 0), (4, 30)):
        held.reset(seed=3)
        twin.control.seed(control_seed)
        engine.reset(seeds=[3])
        rng, found = np.random.default_rng(3), 0
        for _ in range(60):
            action = rng.uniform(-0.5, 0.5, engine.n_actions).astype(np.float32)
            obs, reward, terminated, truncated, info = held.step(action)
            result = engine.step(action[None], np.array([3], np.int32))
            is_over = terminated or truncated
            assert np.array_equal(obs, (result.terminal_obs if is_over else result.obs)[0])
            assert (reward, info["n_held"]) == (result.rewards[0], result.n_held[0])
            found += not np.array_equal(info[MUSCLE_SAMPLE], result.samples[0])
            if is_over:
                held.reset()
        assert found >= n_different
        assert found == 0 or n_different


@pytest.mark.parametrize("option", [{"stiffness": 99.0}, {"effort_weight": 0.06}, {"activation": "inverted"}])
def test_another_option_is_seen(option):
    pair = make_pair("MuscleArmReach-v0", {}, "qp", load_task("MuscleArmReach-v0", option))
    assert "reward" in compare(*pair, n_steps=10)[0]


def test_another_low_level_is_seen():
    env, engine = make_pair("MuscleWalkerWalk-v0", {}, "qp")
    engine.set_low_level(native.load().TorqueLowLevel())
    assert {"obs", "effort"} <= compare(env, engine, n_steps=5)[0]


def test_threads_and_neighbours_change_nothing():
    task = load_task("MuscleWalkerSpeed-v0", {"actuation": "muscle_e2e"})
    actions = np.random.default_rng(0).uniform(0, 1, (40, 5, 14)).astype(np.float32)
    runs = []
    for n_threads in (1, 2, 3):
        engine = Engine(task, 5, n_threads, seeds=range(5))
        engine.reset()
        runs.append(np.stack([engine.step(action).obs for action in actions]))
    assert np.array_equal(runs[0], runs[1])
    assert np.array_equal(runs[0], runs[2])
    assert len(np.unique(runs[0][0, :, 23])) == 5  # each environment has a speed of its own


@pytest.mark.parametrize("env_id", ["MuscleArmReach-v0", "MuscleWalkerSpeed-v0"])
def test_a_state_keeps_target_and_memory(env_id):
    low_level = native.load().QpLowLevel(100.0, 1e-4)
    engines = [Engine(load_task(env_id), 1, seeds=[seed]) for seed in (1, 2)]
    actions = np.random.default_rng(0).uniform(-0.3, 0.3, (60, 1, engines[0].n_actions)).astype(np.float32)
    for engine in engines:
        engine.set_low_level(low_level)
        engine.reset()
    for action in actions[:20]:
        engines[0].step(action)
    engines[1].set_state(0, engines[0].get_state(0))
    for action in actions[20:]:
        for left, right in zip(*(engine.step(action) for engine in engines), strict=True):
            assert np.array_equal(left, right)


def test_the_twin_begins_where_the_engine_is():
    engine = Engine(load_task("MuscleArmReach-v0", {"actuation": "torque"}), 1, seeds=[4])
    engine.reset()
    engine.step(np.ones((1, 2), np.float32))
    twin = MuscleEnv(env_file="muscle_arm_reach.yaml", actuation="torque")
    twin.reset(seed=0)
    twin.set_physics(engine.physics(0))
    assert np.array_equal(twin.get_physics(), engine.physics(0))
    assert np.array_equal(twin.data.body("target").xpos[:2], engine.observe(0)[6:8])
    # From a state of positions and velocities, both begin with the model's own target.
    qpos, qvel = engine.qpos_qvel(0)
    expected = engine.set_qpos_qvel(0, qpos, qvel)
    twin.set_state(qpos, qvel)
    obs, *_ = twin.step(np.zeros(2, np.float32))
    assert np.array_equal(obs, engine.step(np.zeros((1, 2), np.float32)).obs[0])
    assert expected[6:8].tolist() == [0.2, 0.4]


def test_breakdowns_end_an_episode_in_both(tmp_path):
    """A mass that is thrown out of its numbers."""
    assets = Path(load_task("MuscleArmReach-v0").model_path)
    (tmp_path / "wild.xml").write_text(assets.read_text().replace('timestep="0.002"', 'timestep="5"'))
    engine = Engine(load_task("MuscleEnv-v0", {"env_file": str(tmp_path / "wild.xml"), "actuation": "torque"}), 1)
    env = MuscleEnv(env_file=str(tmp_path / "wild.xml"), actuation="torque")
    env.reset(seed=0)
    engine.reset(seeds=[0])
    for _ in range(200):
        obs, reward, terminated, truncated, info = env.step(np.ones(2, np.float32))
        result = engine.step(np.ones((1, 2), np.float32))
        assert (reward, terminated, truncated) == (result.rewards[0], result.terminated[0], result.truncated[0])
        if terminated:
            break
    assert info["unstable"]
    assert result.unstable[0]
    assert np.isnan(info["effort"])
    assert np.isfinite(obs).all()
    assert np.array_equal(obs, result.terminal_obs[0])
