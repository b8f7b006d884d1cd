"""The native engine from Python: results, states, holds, breakdowns and refusals."""

import gc
import hashlib
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import mujoco
import numpy as np
import pytest

from sb3_hrl import native
from sb3_hrl.env_ids import MUSCLE_ENVS
from sb3_hrl.envs import Engine, StepResult, load_task, native_tasks
from sb3_hrl.errors import NativeError
from sb3_hrl.wrappers import ActionHold

# Those with muscles need a low level: tests/equivalence/test_muscle_bodies.py.
TASKS = tuple(env_id for env_id in native_tasks() if env_id not in MUSCLE_ENVS)
N_ENVS = 5


def actions_of(engine: Engine, seed: int, n_envs: int | None = None) -> np.ndarray:
    space = engine.task.action_space
    shape = (n_envs or engine.n_envs, engine.n_actions)
    return np.random.default_rng(seed).uniform(space.low, space.high, shape).astype(np.float32)


def digest(engine: Engine, n_steps: int, with_hold: bool = True) -> str:
    """The hash of everything that an engine gives in some steps."""
    n_hold = np.arange(engine.n_envs, dtype=np.int32) % 3 + 1 if with_hold else None
    found = hashlib.sha256()
    for array in engine.reset():
        found.update(array.tobytes())
    for t in range(n_steps):
        for array in engine.step(actions_of(engine, t), n_hold, 0.97):
            found.update(array.tobytes())
    return found.hexdigest()


def equal(left: StepResult, right: StepResult, rows_left: Any = slice(None), rows_right: Any = slice(None)) -> bool:
    return all(np.array_equal(a[rows_left], b[rows_right]) for a, b in zip(left, right, strict=True))


# --- the same numbers everywhere -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["Hopper-v5", "HalfCheetah-v5", "Humanoid-v5"])
def test_threads_change_nothing(env_id):
    task = load_task(env_id)
    for n_envs in (N_ENVS, 1):
        digests = {digest(Engine(task, n_envs, n_threads, seeds=range(n_envs)), 40) for n_threads in (1, 2, 3, 8)}
        assert len(digests) == 1
    assert digest(Engine(task, 1, 1, seeds=[1]), 40) not in digests


def test_a_seed_means_the_same_episodes_wherever_the_environment_stands():
    task = load_task("Hopper-v5")
    alone, among = Engine(task, 1, seeds=[11]), Engine(task, 4, seeds=[3, 4, 11, 5])
    assert np.array_equal(alone.reset()[0][0], among.reset()[0][2])
    n_ends = 0
    for t in range(150):
        actions = actions_of(among, t)
        there, here = among.step(actions), alone.step(actions[2:3])
        assert equal(here, there, 0, 2)
        n_ends += here.terminated[0]
    assert n_ends > 1


def test_seeds_at_reset():
    engine = Engine(load_task("Hopper-v5"), 3)
    first, _ = engine.reset(seeds=[1, 2, 1])
    assert np.array_equal(first[0], first[2])
    assert not np.array_equal(first[0], first[1])
    second, _ = engine.reset()  # goes on with the same random numbers
    assert not np.array_equal(first[0], second[0])
    assert np.array_equal(second[0], second[2])
    again, _ = engine.reset(indices=[2, 0], seeds=[2, None])
    assert np.array_equal(again[0], first[1])
    assert not np.array_equal(again[1], first[0])


def test_without_seeds_every_environment_and_engine_differs():
    task = load_task("HalfCheetah-v5")
    obs = np.concatenate([Engine(task, 3).reset()[0] for _ in range(2)])
    assert len(np.unique(obs[:, 0])) == 6


@pytest.mark.parametrize("env_id", TASKS)
def test_reset_noise_has_gymnasiums_range_and_spread(env_id):
    env = gym.make(env_id)
    states = []
    for seed in range(300):
        env.reset(seed=seed)
        data: Any = env.get_wrapper_attr("data")
        states.append(np.concatenate([data.qpos, data.qvel]))
    engine = Engine(load_task(env_id), 300, seeds=range(300))
    engine.reset()
    native_states = np.array([np.concatenate(engine.qpos_qvel(index)) for index in range(300)])
    theirs, ours = np.array(states), native_states
    scale = theirs.std(axis=0)
    assert np.array_equal(scale == 0, ours.std(axis=0) == 0)
    moving = scale > 0
    assert np.array_equal(theirs[:, ~moving], ours[:, ~moving])
    assert (np.abs(theirs.mean(axis=0) - ours.mean(axis=0))[moving] < 0.45 * scale[moving]).all()
    ratio = ours.std(axis=0)[moving] / scale[moving]
    assert ((ratio > 0.8) & (ratio < 1.25)).all()


# --- episodes ------------------------------------------------------------------------------------------------------------


def test_an_episode_that_ends_is_reset_in_the_same_step():
    task = load_task("Hopper-v5", max_episode_steps=30)
    engine = Engine(task, 4, seeds=range(4))
    engine.reset()
    returns, lengths = np.zeros(4), np.zeros(4, int)
    kinds = set()
    for t in range(200):
        result = engine.step(actions_of(engine, t))
        returns, lengths = returns + result.rewards, lengths + 1
        for index in np.flatnonzero(result.terminated | result.truncated).tolist():
            kinds.add((bool(result.terminated[index]), bool(result.truncated[index])))
            assert result.truncated[index] == (lengths[index] == 30)
            assert result.episode_returns[index] == returns[index]
            assert result.episode_lengths[index] == lengths[index]
            # The terminal observation is the old episode's, the observation and the reset's info the new one's.
            assert result.infos[index, task.info_keys.index("x_position")] != result.reset_infos[index, 0]
            qpos, _ = engine.qpos_qvel(index)
            assert np.array_equal(result.obs[index, :5], qpos[1:])
            assert result.reset_infos[index, 0] == qpos[0]
            assert np.abs(qpos[1:] - [1.25, 0, 0, 0, 0]).max() <= 5e-3
            assert not np.array_equal(result.terminal_obs[index], result.obs[index])
            assert (result.terminal_obs[index, 0] < 0.7 or abs(result.terminal_obs[index, 1]) > 0.2) or result.truncated[index]
            returns[index] = lengths[index] = 0
        alive = ~(result.terminated | result.truncated)
        assert not result.terminal_obs[alive].any()
        assert not result.episode_lengths[alive].any()
    assert {(True, False), (False, True)} <= kinds


def test_results_are_not_overwritten():
    engine = Engine(load_task("Hopper-v5"), 2, seeds=[0, 1])
    engine.reset()
    first = engine.step(actions_of(engine, 0))
    copies = [array.copy() for array in first]
    for t in range(60):
        engine.step(actions_of(engine, t))
    assert all(np.array_equal(array, copy) for array, copy in zip(first, copies, strict=True))


def test_doubles_are_copied_to_single_precision():
    task = load_task("HalfCheetah-v5")
    left, right = Engine(task, 2, seeds=[0, 1]), Engine(task, 2, seeds=[0, 1])
    left.reset()
    right.reset()
    actions = np.random.default_rng(0).uniform(-1, 1, (2, 6))
    kept = actions.copy()
    assert equal(left.step(actions), right.step(actions.astype(np.float32)))
    assert np.array_equal(actions, kept)


# --- action hold ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", ["Hopper-v5", "HalfCheetah-v5", "Ant-v5"])
@pytest.mark.parametrize("gamma", [1.0, 0.987654321])
def test_hold_equals_the_wrapper(env_id, gamma):
    options: dict[str, Any] = {"max_episode_steps": 50}
    task = load_task(env_id, **options)
    env = ActionHold(gym.make(env_id, **options), hold_seconds=4 * task.dt)
    env.configure_hold(gamma=gamma, decisions=0)
    engine = Engine(task, 1)
    engine.reset()
    obs, _ = env.reset(seed=0)
    n_hold = np.array([4], np.int32)

    def put() -> None:
        data: Any = env.get_wrapper_attr("data")
        assert np.array_equal(engine.set_qpos_qvel(0, data.qpos.copy(), data.qvel.copy()), obs)

    put()
    n_short = n_ends = 0
    for t in range(60):
        action = actions_of(engine, t)
        obs, reward, terminated, truncated, info = env.step(action[0])
        result = engine.step(action, n_hold, gamma)
        is_done = terminated or truncated
        assert np.array_equal((result.terminal_obs if is_done else result.obs)[0], obs)
        assert result.rewards[0] == reward
        assert (result.terminated[0], result.truncated[0], result.n_held[0]) == (terminated, truncated, info["n_held"])
        native_info = task.info(result.infos[0])
        assert all(native_info[key] == info[key] for key in native_info)
        n_short += info["n_held"] < 4
        if is_done:
            n_ends += 1
            episode = info["episode"]  # of the Monitor inside the hold: in steps of the task, undiscounted
            assert (round(float(result.episode_returns[0]), 6), result.episode_lengths[0]) == (episode["r"], episode["l"])
            obs, _ = env.reset()
            put()
    assert n_ends > 1
    assert n_short > 0


def test_each_environment_has_its_own_hold():
    task = load_task("HalfCheetah-v5")
    held, plain = Engine(task, 3, seeds=[1, 1, 1]), Engine(task, 1, seeds=[1])
    held.reset()
    plain.reset()
    action = actions_of(plain, 0)
    result = held.step(np.repeat(action, 3, axis=0), np.array([1, 2, 3], np.int32), 0.5)
    steps = [plain.step(action) for _ in range(3)]
    rewards = [step.rewards[0] for step in steps]
    assert list(result.n_held) == [1, 2, 3]
    assert [np.array_equal(result.obs[i], steps[i].obs[0]) for i in range(3)] == [True] * 3
    assert list(result.rewards) == [
        rewards[0],
        rewards[0] + 0.5 * rewards[1],
        (rewards[0] + 0.5 * rewards[1]) + 0.25 * rewards[2],
    ]


# --- states --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", TASKS)
def test_a_state_continues_bit_for_bit(env_id):
    task = load_task(env_id, max_episode_steps=25)
    engine = Engine(task, 2, seeds=[1, 2])
    engine.reset()
    for t in range(17):
        engine.step(actions_of(engine, t))
    state = engine.get_state(1)
    other = Engine(task, 3)  # never reset, and in another place
    other.reset(indices=[0, 1])
    other.set_state(2, state)
    assert other.get_state(2) == state
    assert np.array_equal(other.observe(2), engine.observe(1))
    n_ends = 0
    for t in range(40):  # through resets, which draw random numbers
        actions = actions_of(engine, 100 + t)
        expected, result = engine.step(actions), other.step(np.repeat(actions[1:], 3, axis=0))
        assert equal(result, expected, 2, 1)
        n_ends += expected.truncated[1] or expected.terminated[1]
    assert n_ends > 0
    assert other.get_state(2) == engine.get_state(1)


def continued(engine: Engine) -> str:
    """The hash of everything that an engine gives from here on."""
    results = (engine.step(actions_of(engine, t)) for t in range(40))
    return hashlib.sha256(b"".join(array.tobytes() for result in results for array in result)).hexdigest()


def test_the_same_in_another_process(tmp_path):
    """Episodes from a seed, and states of all tasks in the middle of one."""
    expected = [digest(Engine(load_task("Ant-v5"), 3, 1, seeds=[7, 8, 2**64 - 1]), 30)]
    for env_id in TASKS:
        engine = Engine(load_task(env_id), 1, seeds=[3])
        engine.reset()
        for t in range(5):
            engine.step(actions_of(engine, t))
        (tmp_path / env_id).write_bytes(engine.get_state(0))
        expected.append(continued(engine))
    code = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.unit.test_engine import TASKS, Engine, continued, digest, load_task
print(digest(Engine(load_task("Ant-v5"), 3, 2, seeds=[7, 8, 2**64 - 1]), 30))
for env_id in TASKS:
    engine = Engine(load_task(env_id), 1)
    engine.set_state(0, open(env_id, "rb").read())
    print(continued(engine))
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == expected


def test_foreign_and_damaged_states_are_refused():
    engine = Engine(load_task("Hopper-v5"), 1, seeds=[0])
    engine.reset()
    state = engine.get_state(0)
    elsewhere = {
        "state: it belongs to another model than Walker2d-v5's walker2d_v5.xml": load_task("Walker2d-v5"),
        "state: it belongs to another task than Hopper-v5 with these options": load_task("Hopper-v5", {"healthy_reward": 2.0}),
    }
    for message, task in elsewhere.items():
        other = Engine(task, 1)
        other.reset()
        with pytest.raises(ValueError, match=f"^{message}$"):
            other.set_state(0, state)
    damaged = {
        "state: it is damaged": [state[:-1], state + b"x", state[:-5] + bytes([state[-5] ^ 1]) + state[-4:]],
        "state: these bytes are not a state of an environment": [b"", state[:20], b"x" + state[1:]],
        "state: expected version 1, got 2": [state[:8] + b"\2" + state[9:]],
    }
    for message, states in damaged.items():
        for wrong in states:
            with pytest.raises(ValueError, match=f"^{message}$"):
                engine.set_state(0, wrong)
    with pytest.raises(ValueError, match=r"^state: expected bytes, got str$"):
        engine.set_state(0, "x")  # type: ignore[arg-type]
    assert engine.get_state(0) == state


def test_options_of_the_picture_do_not_make_another_task():
    engine = Engine(load_task("Hopper-v5", {"render_mode": "rgb_array", "width": 64}), 1)
    engine.reset()
    Engine(load_task("Hopper-v5"), 1).set_state(0, engine.get_state(0))


# --- when things go wrong ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e11])
def test_a_simulation_that_breaks_down(tmp_path, monkeypatch, capfd, n_threads, value):
    monkeypatch.chdir(tmp_path)
    task = load_task("HalfCheetah-v5")
    engine, reference = (Engine(task, 3, n_threads, seeds=[5, 6, 7]) for _ in range(2))
    first_obs, _ = engine.reset()
    reference.reset()
    qpos, qvel = engine.qpos_qvel(1)
    bad = qvel.copy()
    bad[2] = value
    engine.set_qpos_qvel(1, qpos, bad)
    assert engine.instabilities() == []
    actions = actions_of(engine, 0)
    result, expected = engine.step(actions), reference.step(actions)
    assert list(result.unstable) == list(result.terminated) == [False, True, False]
    assert not result.truncated.any()
    assert equal(result, expected, [0, 2], [0, 2])  # the others do not notice
    assert result.rewards[1] == 0.0
    assert np.isnan(result.infos[1]).all()
    assert result.episode_lengths[1] == 1
    assert np.isfinite(result.obs).all()
    assert np.isfinite(result.terminal_obs).all()
    if not np.isfinite(value):
        assert np.array_equal(result.terminal_obs[1], first_obs[1])  # the last finite one
    [record] = engine.instabilities()
    assert record == (1, 1, 6, 1, 1)
    assert record.env_index == record.n_events == record.n_episode_steps == 1
    # It goes on, with a new episode.
    for t in range(5):
        later = engine.step(actions_of(engine, t))
        assert not later.unstable.any()
    engine.set_qpos_qvel(1, qpos, bad)
    engine.step(actions)
    assert engine.instabilities() == [(1, 2, 6, 1, 7)]
    assert list(tmp_path.iterdir()) == []  # no MUJOCO_LOG.TXT
    assert capfd.readouterr() == ("", "")


def test_a_breakdown_within_a_hold_keeps_what_was_earned():
    task = load_task("HalfCheetah-v5")
    held, plain = Engine(task, 1), Engine(task, 1)
    qpos, qvel = np.zeros(9), np.zeros(9)
    qpos[1], qvel[0] = 50.0, 9e9  # high above the ground, so fast that MuJoCo gives up after some steps
    for engine in (held, plain):
        engine.reset()
        engine.set_qpos_qvel(0, qpos, qvel)
    actions = np.zeros((1, 6), np.float32)
    result = held.step(actions, np.array([400], np.int32), 0.5)
    n_held = int(result.n_held[0])
    assert 2 < n_held < 400
    steps = [plain.step(actions) for _ in range(n_held)]
    assert [bool(step.unstable[0]) for step in steps] == [False] * (n_held - 1) + [True]
    reward = 0.0
    for i, step in enumerate(steps):
        reward += 0.5**i * step.rewards[0]
    assert result.rewards[0] == reward
    assert steps[-1].rewards[0] == 0.0
    assert np.array_equal(result.terminal_obs[0], steps[-2].obs[0])
    assert result.episode_lengths[0] == n_held


def test_an_environment_that_was_not_reset():
    engine, reference = (Engine(load_task("Hopper-v5"), 4, 2, seeds=range(4)) for _ in range(2))
    reference.reset()
    actions = actions_of(engine, 0)
    with pytest.raises(NativeError, match=r"^environment 0, step 0 of its episode: it must be reset before it can step$"):
        engine.step(actions)
    engine.reset(indices=[0, 1, 3])
    with pytest.raises(NativeError, match=r"^environment 2, step 0 "):
        engine.step(actions)
    reference.step(actions)
    engine.reset(indices=[2])
    # The others had finished their step; after the reset the engine is as good as new.
    assert equal(engine.step(actions), reference.step(actions), [0, 1, 3], [0, 1, 3])


def test_an_error_of_mujoco_arrives_as_an_exception(tmp_path, monkeypatch, capfd):
    """By default it would end the process: here a pile of boxes needs more memory than the model allows."""
    monkeypatch.chdir(tmp_path)
    box = '<body pos="0 0 {}"><freejoint/><geom type="box" size=".2 .2 .1"/></body>'
    boxes = "".join(box.format(0.1 + 0.15 * n) for n in range(12))
    (tmp_path / "pile.xml").write_text(f"""<mujoco><size memory="8K"/>
        <worldbody><geom type="plane" size="5 5 1"/>{boxes}
        <body pos="3 0 1"><joint name="hinge" axis="0 1 0"/><geom size=".1" pos="0 0 -.3"/></body></worldbody>
        <actuator><motor joint="hinge" ctrlrange="-1 1"/></actuator></mujoco>""")
    text = "id: Pile-v0\nmodel: pile.xml\nobservation: [{term: qpos}]\nvalues: {x: {term: qpos, index: 0}}\nreward: x\n"
    (tmp_path / "pile.yaml").write_text(text)
    engine = Engine(load_task(tmp_path / "pile.yaml"), 3, 2, seeds=[0, 1, 2])
    actions = np.zeros((3, 1), np.float32)
    messages = []
    for _ in range(2):  # a reset makes it as good as new: it fails again, at the same step
        engine.reset()
        with pytest.raises(NativeError, match=r"^environment 0, step \d+ of its episode: MuJoCo: .*out of memory") as error:
            list(engine.step(actions) for _ in range(1000))
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert {path.name for path in tmp_path.iterdir()} == {"pile.xml", "pile.yaml"}  # no MUJOCO_LOG.TXT
    assert capfd.readouterr() == ("", "")


def test_wrong_arrays_are_refused_with_the_exact_message():
    engine = Engine(load_task("Hopper-v5"), 2)
    engine.reset()
    good = np.zeros((2, 3), np.float32)
    wrong_actions: dict[str, Any] = {
        "actions: expected a numpy array, got list": [[0.0] * 3] * 2,
        "actions: expected float32 or float64, got int64": np.zeros((2, 3), np.int64),
        "actions: expected float32 or float64, got float16": np.zeros((2, 3), np.float16),
        "actions: expected the shape (2, 3), got (3, 2)": np.zeros((3, 2), np.float32),
        "actions: expected the shape (2, 3), got (6,)": np.zeros(6, np.float32),
        "actions: expected a C-contiguous array, got one with strides (4, 8)": np.zeros((3, 2), np.float32).T,
        "actions: expected a C-contiguous array, got one with strides (24, 8)": np.zeros((2, 6), np.float32)[:, ::2],
    }
    for message, actions in wrong_actions.items():
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            engine.step(actions)
    wrong_holds: dict[str, Any] = {
        "n_hold: expected int32, got int64": np.ones(2, np.int64),
        "n_hold: expected the shape (2,), got (3,)": np.ones(3, np.int32),
        "n_hold: expected numbers >= 1, got 0": np.array([1, 0], np.int32),
    }
    for message, n_hold in wrong_holds.items():
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            engine.step(good, n_hold)
    wrong_states: dict[str, Any] = {
        "qpos: expected float64, got float32": (np.zeros(6, np.float32), np.zeros(6)),
        "qvel: expected the shape (6,), got (5,)": (np.zeros(6), np.zeros(5)),
    }
    for message, state in wrong_states.items():
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            engine.set_qpos_qvel(0, *state)
    read_only = good.copy()
    read_only.flags.writeable = False
    engine.step(read_only)  # it is only read


def test_wrong_numbers_are_refused():
    task = load_task("Hopper-v5")
    for message, arguments in {
        "n_envs: expected a whole number >= 1, got 0": {"n_envs": 0},
        "n_envs: expected a whole number >= 1, got 2.0": {"n_envs": 2.0},
        "n_threads: expected a whole number >= 1, got -1": {"n_envs": 2, "n_threads": -1},
        "seeds: expected 2, got 1": {"n_envs": 2, "seeds": [0]},
        "seeds: expected whole numbers from 0 to 2**64 - 1, or None, got -1": {"n_envs": 1, "seeds": [-1]},
    }.items():
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            Engine(task, **arguments)  # type: ignore[arg-type]
    engine = Engine(task, 2)
    for call in (
        lambda: engine.reset(indices=[2]),
        lambda: engine.get_state(-1),
        lambda: engine.qpos_qvel(2),
        lambda: engine.observe(True),
    ):
        with pytest.raises(ValueError, match=r"^index: expected a whole number from 0 to 1, got (2|-1|True)$"):
            call()
    with pytest.raises(ValueError, match=r"^indices: expected each environment once, got \[1, 1\]$"):
        engine.reset(indices=[1, 1])


def test_the_bare_core_refuses_what_would_be_copied():
    """An output array that is converted silently would leave the caller's empty."""
    engine = Engine(load_task("Hopper-v5"), 1)
    infos = np.empty((1, 2))
    for obs in (np.empty((1, 11), np.float32), np.empty((11, 2))[:, ::2]):
        with pytest.raises(TypeError, match="incompatible function arguments"):
            engine._core.reset([0], [], obs, infos)
    with pytest.raises(ValueError, match=r"^expected an array of 11 numbers, got 12$"):
        engine._core.reset([0], [], np.empty((1, 12)), infos)
    read_only = np.empty((1, 11))
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="not writeable"):
        engine._core.reset([0], [], read_only, infos)


# --- the end -------------------------------------------------------------------------------------------------------------


def n_os_threads() -> int:
    gc.collect()  # what earlier tests left behind goes now, and not in between
    return len(os.listdir("/proc/self/task"))


def test_mujocos_clock_stands_still_and_comes_back():
    engine = Engine(load_task("Hopper-v5"), n_envs=4, n_threads=2)
    calls = []
    mujoco.set_mjcb_time(lambda: calls.append(1) or 0.0)  # type: ignore[func-returns-value]
    try:
        clock = mujoco.get_mjcb_time()
        engine.reset()
        engine.step(np.zeros((4, 3), np.float32))
        assert not calls
        assert mujoco.get_mjcb_time() is clock
        env = gym.make("Hopper-v5")
        env.reset()
        assert calls  # a simulation elsewhere is timed again
        env.close()
    finally:
        mujoco.set_mjcb_time(None)


def test_close():
    before = n_os_threads()
    engine = Engine(load_task("Hopper-v5"), 4, n_threads=3)
    assert n_os_threads() == before + 2  # the caller is the third
    engine.close()
    engine.close()
    assert n_os_threads() == before
    for call in (engine.reset, lambda: engine.step(np.zeros((4, 3), np.float32)), lambda: engine.get_state(0)):
        with pytest.raises(NativeError, match=r"^this Engine is closed$"):
            call()


def test_one_thread_is_the_callers():
    before = n_os_threads()
    engine = Engine(load_task("Hopper-v5"), 4, n_threads=1)
    engine.reset()
    assert n_os_threads() == before
    assert 1 <= Engine(load_task("Hopper-v5"), 4).n_threads <= 4


def test_an_engine_cannot_be_pickled_but_its_parts_can():
    engine = Engine(load_task("Hopper-v5"), 1)
    engine.reset()
    with pytest.raises(TypeError, match="an Engine cannot be pickled: it owns threads"):
        pickle.dumps(engine)
    task, state = pickle.loads(pickle.dumps((engine.task, engine.get_state(0))))
    assert task == engine.task
    Engine(task, 1).set_state(0, state)


def test_the_post_step_stage_is_skipped_only_where_nothing_reads_it():
    expected = {"Ant-v5": True, "Humanoid-v5": True, "HumanoidStandup-v5": True}
    for env_id in TASKS:
        core = native.load().Task(load_task(env_id).spec.to_native())
        assert core.needs_post_step == expected.get(env_id, False), env_id
    task = load_task("Humanoid-v5", {"include_cfrc_ext_in_observation": False})  # the reward still reads it
    assert native.load().Task(task.spec.to_native()).needs_post_step
    assert "xipos" in native.load().Task(task.spec.to_native()).derived_fields
