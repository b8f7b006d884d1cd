"""The pool of actors, with real processes and real signals."""

import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.policies import ActorCriticCnnPolicy, ActorCriticPolicy
from stable_baselines3.common.vec_env import DummyVecEnv, VecCheckNan, VecEnv, VecNormalize, VecTransposeImage

from benchmarks.reliability.actors import Audit, make_env
from sb3_hrl import native
from sb3_hrl.actors import ActorPool, ActorVecEnv, Trajectory, check_shares, learn_statistics, make_actor_env
from sb3_hrl.actors.actor import describe_policy, learned_arrays
from sb3_hrl.actors.memory import SharedWeights
from sb3_hrl.actors.process import preload
from sb3_hrl.cnn import NatureCnnPolicy
from sb3_hrl.registry import register_envs
from sb3_hrl.vec_env import NativeVecEnv
from sb3_hrl.wrappers import ActionHold
from tests.envs import ImageEnv, ScriptedEnv

N_STEPS = 16


def _make_pool(env: VecEnv, n_actors: int = 2, **kwargs: Any) -> ActorPool:
    policy = ActorCriticPolicy(env.observation_space, env.action_space, lambda _: 0.0)
    return ActorPool(env, policy, n_actors, N_STEPS, noise_seed=0, **kwargs)


def _make_actor_env(env: Any, n_envs: int = 2, **kwargs: Any) -> ActorVecEnv:
    venv = make_vec_env(env, n_envs, seed=1, vec_env_cls=ActorVecEnv, **kwargs)  # type: ignore[arg-type]
    assert isinstance(venv, ActorVecEnv)
    return venv


def _pid(pool: ActorPool, actor: int) -> int:
    return pool._workers[actor].process.pid


@pytest.fixture(autouse=True)
def _nobody_stays() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


# --- weights --------------------------------------------------------------------------------------------------------------


def _write_all_the_time(weights: SharedWeights, size: int) -> None:
    version = 0
    while True:
        version += 1
        weights.write({"a": np.full(size, version), "b": np.full(size, version)}, version)


def test_weights_are_never_torn() -> None:
    size = 200_000
    arrays = {"a": np.zeros(size, np.int64), "b": np.zeros(size, np.int64)}
    weights = SharedWeights(arrays)
    preload()
    writer = multiprocessing.get_context("forkserver").Process(target=_write_all_the_time, args=(weights, size), daemon=True)
    writer.start()
    try:
        versions: list[int] = []
        n_torn = 0
        # So long that somebody who did not care would have met the writer at work, which is the rest of this test.
        while len(versions) < 20 or n_torn == 0:
            version = weights.read(arrays, versions[-1] if versions else 0)
            assert (arrays["a"] == version).all()
            assert (arrays["b"] == version).all()
            versions.append(version)
            careless = weights._shared.views(weights._shared.block().copy())
            n_torn += careless["a"][0] != careless["b"][-1]
        assert versions == sorted(versions)
    finally:
        writer.kill()
        writer.join()


def test_known_weights_are_not_read_again() -> None:
    arrays = {"a": np.arange(3.0)}
    weights = SharedWeights(arrays)
    weights.write(arrays, 7)
    copy = {"a": np.zeros(3)}
    assert weights.read(copy, known=7) == 7
    assert not copy["a"].any()
    assert weights.read(copy, known=6) == 7
    assert np.array_equal(copy["a"], np.arange(3.0))


# --- trajectories -----------------------------------------------------------------------------------------------------------


def _collect(pool: ActorPool, n_trajectories: int, look: Callable[[int, Trajectory], None]) -> None:
    for number in range(n_trajectories):
        trajectory = pool.get()
        look(number, trajectory)
        pool.release(trajectory)
        pool.publish()


def test_images_lie_as_the_learner_s_buffer_has_them() -> None:
    for policy_class, axes in ((NatureCnnPolicy, (0, 1, 3, 4, 2)), (ActorCriticCnnPolicy, (0, 1, 2, 3, 4))):
        env = VecTransposeImage(_make_actor_env(lambda: ImageEnv(0)))
        policy = policy_class(env.observation_space, env.action_space, lambda _: 0.0)
        with ActorPool(env, policy, 2, N_STEPS, noise_seed=0) as pool:
            pool.publish()
            obs = pool.get().obs
        assert isinstance(obs, np.ndarray)
        assert obs.shape == (N_STEPS + 1, 1, 3, 64, 64)
        assert obs.transpose(axes).flags.c_contiguous
        twin = ImageEnv(0)
        assert np.array_equal(obs[0, 0], twin.reset()[0].transpose(2, 0, 1))
        assert np.array_equal(obs[1, 0], twin.step(0)[0].transpose(2, 0, 1))


@pytest.mark.parametrize(("env_id", "shape"), [("Pendulum-v1", (6,)), ("procgen-coinrun-v0", (64, 64, 3))])
def test_every_trajectory_comes_once_and_whole(env_id: str, shape: tuple[int, ...]) -> None:
    """Also of a plug-in's environments, which actors know by their ids."""
    register_envs()
    env = make_env(env_id, 4)
    audit, lags = Audit(env.action_space), []

    def look(number: int, trajectory: Trajectory) -> None:
        audit.check(trajectory)
        lags.append(pool.version - trajectory.version)
        assert trajectory.envs == slice(2 * trajectory.actor, 2 * trajectory.actor + 2)

    with _make_pool(env) as pool:
        assert np.asarray(env.reset()).shape == (4, *shape)
        pool.publish()
        _collect(pool, 40, look)
        times = pool.times()
    assert audit.problems == []
    assert min(lags) >= 0
    assert max(lags) > 0
    # Two places each: at most one is waiting while the other is filled, and the other actor publishes in between.
    assert times.bottleneck in ("actors", "learner")
    assert 0 <= times.actor_wait <= 1


def test_the_audit_sees_what_is_wrong() -> None:
    env = make_env("Pendulum-v1", 2)
    audit = Audit(env.action_space)
    with _make_pool(env) as pool:
        env.reset()
        pool.publish()
        trajectory = pool.get()
        audit.check(trajectory)
        assert audit.problems == []
        audit.check(trajectory)
        assert len(audit.problems) == 2  # doubled: its number, and where it begins
        trajectory.obs[8:, 0, -3] += 1  # type: ignore[index]
        audit.check(trajectory._replace(actor=9, sequence=0))
        assert audit.problems[-1].endswith("torn")
        trajectory.obs[:, 0, -3] = trajectory.obs[0, 0, -3]  # type: ignore[index]
        trajectory.actions[3] += 0.01
        audit.check(trajectory._replace(actor=8, sequence=0))
        assert audit.problems[-1].endswith("not those that the environments got")


def test_actors_wait_when_their_places_are_full() -> None:
    env = _make_actor_env("CartPole-v1")
    with _make_pool(env, n_slots=1) as pool:
        env.reset()
        pool.publish()
        first, second = pool.get(), pool.get()
        with pytest.raises(RuntimeError, match="no actor has anything to do"):
            pool.get()
        obs = np.array(first.obs)
        time.sleep(0.2)
        assert np.array_equal(np.asarray(first.obs), obs)
        pool.release(first)
        assert pool.get().actor == first.actor
        assert {first.actor, second.actor} == {0, 1}


def test_timeouts_and_infos() -> None:
    def make() -> gym.Env:
        return ScriptedEnv(n_steps=5, ends_terminated=False, ends_truncated=True)

    env = _make_actor_env(make)
    with _make_pool(env) as pool:
        env.reset()
        pool.publish()
        trajectory = pool.get()
        ends = np.array([4, 9, 14])
        assert np.array_equal(np.nonzero(trajectory.dones)[0], ends)
        assert np.array_equal(trajectory.timeouts, trajectory.dones)
        assert np.array_equal(np.asarray(trajectory.terminal_obs), np.full((3, 2), (5, 0)))
        assert np.array_equal(trajectory.obs[5, 0], (0, 5))  # type: ignore[index]
        assert [(step, index, info["episode"]["r"]) for step, index, info in trajectory.infos] == [(s, 0, 15.0) for s in ends]
        assert trajectory.rewards[:5, 0].tolist() == [1, 2, 3, 4, 5]  # no bootstrap
        assert trajectory.episode_starts[0].all()


def test_statistics_of_a_replaced_actor_begin_anew() -> None:
    env = VecNormalize(_make_actor_env("Pendulum-v1", 4))
    with _make_pool(env, n_slots=1) as pool:
        env.reset()
        pool.publish()
        trajectories = sorted((pool.get(), pool.get()), key=lambda trajectory: trajectory.actor)
        twin = VecNormalize(_make_actor_env("Pendulum-v1", 4))
        twin.obs_rms, twin.ret_rms = env.obs_rms, env.ret_rms
        env.returns[:] = 100.0  # of episodes that nobody will finish
        learn_statistics(env, trajectories)
        learn_statistics(twin, trajectories)
        assert np.array_equal(env.returns, twin.returns)
        with pytest.raises(ValueError, match="follow one another"):
            learn_statistics(env, trajectories[::-1])


@pytest.mark.parametrize("is_shared", [True, False])
def test_an_actor_s_policy_is_the_learner_s(is_shared: bool) -> None:
    env = DummyVecEnv([ScriptedEnv])
    space = spaces.Box(0, 255, (3, 64, 64), np.uint8)
    policy = ActorCriticCnnPolicy(space, spaces.Discrete(2), lambda _: 0.0, share_features_extractor=is_shared)
    twin = type(policy)(**describe_policy(policy))
    learned = learned_arrays(policy, env)
    for name, array in learned_arrays(twin, env).items():
        array[...] = learned[name]
    images = th.randint(0, 256, (4, 3, 64, 64), dtype=th.uint8)
    for mine, other in zip(
        policy.evaluate_actions(images, th.zeros(4)), twin.evaluate_actions(images, th.zeros(4)), strict=True
    ):
        assert mine is not None
        assert other is not None
        assert th.equal(mine, other)


# --- what happens to actors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps_states", [False, True])
def test_killed_actors_are_replaced(keeps_states: bool) -> None:
    env = make_env("Pendulum-v1", 4)
    audit = Audit(env.action_space, keeps_states)

    def look(number: int, trajectory: Trajectory) -> None:
        audit.check(trajectory)
        if number % 10 == 4:  # one that has come on since it was replaced: else it does not go back a second time
            killed.append(trajectory.actor)
            os.kill(_pid(pool, trajectory.actor), signal.SIGKILL)

    killed: list[int] = []
    pool = _make_pool(env)
    pool.keeps_states = keeps_states
    with pool, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env.reset()
        pool.publish()
        _collect(pool, 40, look)
    assert len(caught) == pool.n_restarts == 4
    envs = ("0 to 1", "2 to 3")[killed[0]]
    text = f"actor {killed[0]} (environments {envs}) was killed by SIGKILL: replaced, the 1. of at most 100"
    assert str(caught[0].message) == text
    assert audit.problems == []
    assert audit.n_trajectories == 40


@pytest.mark.parametrize("seconds", [0.0, 2.0], ids=["a learner that waits", "a learner that never has to"])
def test_an_actor_that_hangs_is_replaced(seconds: float) -> None:
    env = make_env("Pendulum-v1", 2)
    audit = Audit(env.action_space)

    def look(number: int, trajectory: Trajectory) -> None:
        audit.check(trajectory)

    def learn(number: int, trajectory: Trajectory) -> None:
        audit.check(trajectory)
        time.sleep(seconds)

    pool, n_looks = _make_pool(env, timeout=6.0), 0
    with pool, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env.reset()
        pool.publish()
        _collect(pool, 4, look)
        stopped = _pid(pool, 1)
        os.kill(stopped, signal.SIGSTOP)
        while pool.n_restarts == 0:
            _collect(pool, 1, learn)
            n_looks += 1
        _collect(pool, 10, look)
        assert _pid(pool, 1) != stopped
        assert not Path(f"/proc/{stopped}").exists()
    (warning,) = caught
    text = str(warning.message)
    assert re.match(r"actor 1 \(environments 1 to 1\) gave no sign of life for [56] seconds: replaced", text)
    assert audit.problems == []
    if seconds:
        assert n_looks <= 5  # the first may find a sign of life, and the last comes after its learning


def test_a_learner_that_is_away_blames_nobody() -> None:
    env = _make_actor_env("CartPole-v1")
    with _make_pool(env, timeout=4.0) as pool:
        env.reset()
        pool.publish()
        trajectories = [pool.get() for _ in range(4)]  # then all places are full
        pool._look(0.0)
        time.sleep(5.0)
        for trajectory in trajectories:
            pool.release(trajectory)
        pool.get()
        assert pool.n_restarts == 0


class SlowEnv(ScriptedEnv):
    """Takes its time."""

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(0.01)
        return super().step(action)


@pytest.mark.parametrize(("env_class", "seconds", "bottleneck"), [(SlowEnv, 0.0, "actors"), (ScriptedEnv, 0.1, "learner")])
def test_the_bottleneck_is_who_the_other_waits_for(env_class: Any, seconds: float, bottleneck: str) -> None:
    env = _make_actor_env(env_class)
    with _make_pool(env) as pool:
        env.reset()
        pool.publish()
        _collect(pool, 6, lambda number, trajectory: time.sleep(seconds))
        pool.times()
        _collect(pool, 6, lambda number, trajectory: time.sleep(seconds))
        assert pool.times().bottleneck == bottleneck


class FailingEnv(ScriptedEnv):
    """
    Fails in its n-th step, or when it is made.

    :param n: which step
    :param error: with what
    """

    def __init__(self, n: int, error: type[Exception] = ZeroDivisionError) -> None:
        super().__init__()
        self.n_left, self.error = n, error
        if n == 0 and multiprocessing.parent_process() is not None:
            raise error("made in vain")

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.n_left -= 1
        if self.n_left == 0:
            raise self.error("the pendulum has fallen off")
        return super().step(action)


# The second is what an environment meets whose simulator has died, and what an actor meets whose learner has.
@pytest.mark.parametrize("error_class", [ZeroDivisionError, BrokenPipeError])
def test_an_error_is_shown_and_too_many_stop_the_training(error_class: type[Exception]) -> None:
    env = _make_actor_env(FailingEnv, env_kwargs={"n": 40, "error": error_class})
    pool = _make_pool(env, max_restarts=3)
    with pool, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env.reset()
        pool.publish()
        with pytest.raises(RuntimeError) as error:
            _collect(pool, 100, lambda number, trajectory: None)
    assert len(caught) == pool.n_restarts == 3
    for text in [str(warning.message) for warning in caught] + [str(error.value)]:
        assert "failed" in text
        assert f"{error_class.__name__}: the pendulum has fallen off" in text
        assert "test_actors.py" in text  # where
        assert "EOFError" not in text
    assert "max_restarts=3 actors have been replaced already" in str(error.value)


def test_who_dies_before_its_first_trajectory_is_followed_from_where_it_began() -> None:
    env = make_env("Pendulum-v1", 2)
    audit = Audit(env.action_space)
    with _make_pool(env) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shown: Any = env.reset()
        os.kill(_pid(pool, 0), signal.SIGKILL)
        pool.publish()
        trajectory = pool.get()
        while trajectory.actor != 0:
            trajectory = pool.get()
        audit.check(trajectory)
        assert (trajectory.obs[0] == shown[:1]).all()  # type: ignore[index]
    assert (trajectory.sequence, pool.n_restarts, audit.problems) == (0, 1, [])


class DyingEnv(ScriptedEnv):
    """Kills its process in the n-th step of its life."""

    n_left = 40

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.n_left -= 1
        if self.n_left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def test_what_kills_it_twice_is_not_tried_again() -> None:
    """An actor that dies where the one before has died is replaced by one with new episodes."""
    env = _make_actor_env(DyingEnv, n_envs=1)
    pool = _make_pool(env, n_actors=1)
    pool.keeps_states = True
    starts: list[tuple[int, int]] = []

    def look(number: int, trajectory: Trajectory) -> None:
        starts.append((int(np.asarray(trajectory.obs)[0, 0, 0]), pool.n_restarts))

    with pool, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        env.reset()
        pool.publish()
        _collect(pool, 4, look)
    # Episodes of seven steps: the 16th step is the third of one, the 32nd the fifth, and the next actor begins anew.
    assert starts == [(0, 0), (2, 0), (0, 2), (2, 2)]


@pytest.mark.parametrize("error_class", [ZeroDivisionError, BrokenPipeError])
def test_an_error_before_the_first_step_stops_at_once(error_class: type[Exception]) -> None:
    env = _make_actor_env(FailingEnv, env_kwargs={"n": 0, "error": error_class})
    expected = rf"(?s)failed before its first step.*{error_class.__name__}: made in vain"
    with _make_pool(env), pytest.raises(RuntimeError, match=expected):
        env.reset()


def test_a_script_without_its_guard_is_told_so(tmp_path: Path) -> None:
    guarded = LEARNER.replace("learning", "learning in vain")
    head, guard, body = guarded.partition('if __name__ == "__main__":\n')
    for script, is_guarded in ((guarded, True), (head + textwrap.dedent(body), False)):
        (tmp_path / "learner.py").write_text(script)
        command = [sys.executable, str(tmp_path / "learner.py"), "512"]
        learner = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (learner.returncode == 0) == is_guarded
        last_line = learner.stderr.strip().rpartition("\n")[2]
        assert (guard.strip() in last_line) != is_guarded
        assert "replaced" not in learner.stderr  # not tried a hundred times


class ThreadsEnv(ScriptedEnv):
    """Shows how many threads environments in C++ take in its process."""

    def _obs(self) -> np.ndarray:
        inner = NativeVecEnv("Hopper-v5", n_envs=2)
        inner.close()
        return np.full(2, inner.n_threads, dtype=np.float32)


def test_an_actor_has_one_thread() -> None:
    """Whatever its environments would take in a process of their own."""
    env = _make_actor_env(ThreadsEnv)
    with _make_pool(env):
        in_actors: Any = env.reset()
    here: Any = env.reset()
    assert in_actors.tolist() == [[1.0, 1.0]] * 2
    assert here.tolist() == [[min(2, native.build_info().available_cpus)] * 2] * 2


def test_monitor_files_go_on(tmp_path: Path) -> None:
    env = _make_actor_env("CartPole-v1", monitor_dir=str(tmp_path))
    for n_runs in (1, 2):
        n_episodes = [0, 0]

        def count(number: int, trajectory: Trajectory, n_episodes: list[int] = n_episodes) -> None:
            n_episodes[trajectory.actor] += len(trajectory.infos)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with _make_pool(env) as pool:
                env.reset()
                pool.publish()
                _collect(pool, 8, lambda number, trajectory: None)
                os.kill(_pid(pool, 0), signal.SIGKILL)
                while min(n_episodes) < 2:
                    _collect(pool, 1, count)
        for rank in range(2):
            lines = (tmp_path / f"{rank}.monitor.csv").read_text().splitlines()
            assert [line[:6] for line in lines[:2]] == ['#{"t_s', "r,l,t"]
            assert sum(not line[0].isdigit() for line in lines) == 2
            assert len(lines) > 2 + n_runs


# --- how it ends ------------------------------------------------------------------------------------------------------------

LEARNER = """
import sys, time
from sb3_hrl.actors import ActorVecEnv
from sb3_hrl.hppo import HPPO
from stable_baselines3.common.env_util import make_vec_env

if __name__ == "__main__":
    env = make_vec_env("CartPole-v1", 4, vec_env_cls=ActorVecEnv)
    model = HPPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, n_actors=2, device="cpu")

    def say_so(locals_, globals_):
        if model.num_timesteps == 256:
            print("learning", flush=True)
        return True

    try:
        model.learn(int(sys.argv[1]), callback=say_so)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def _members(session: int) -> list[int]:
    """The processes of a session."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(stat[3]) == session and stat[0] != "Z":
                members.append(int(entry.name))
    return members


@pytest.mark.parametrize("how", ["normal end", "SIGINT", "SIGTERM", "SIGKILL with a stopped actor"])
def test_nothing_stays(how: str, tmp_path: Path) -> None:
    script = tmp_path / "learner.py"
    script.write_text(LEARNER)
    n_steps = "512" if how == "normal end" else str(10**9)
    learner = subprocess.Popen(
        [sys.executable, str(script), n_steps],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert learner.stdout is not None
    assert learner.stderr is not None
    with learner, learner.stdout, learner.stderr:
        assert learner.stdout.readline() == "learning\n"
        if how != "normal end":
            assert len(_members(learner.pid)) >= 4  # learner, fork server, two actors
            # What they share has no name any more: nobody has to remove it.
            maps = Path(f"/proc/{learner.pid}/maps").read_text().splitlines()
            shared = [line for line in maps if "/dev/shm/" in line or "pym-" in line]
            assert shared
            assert all(line.endswith("(deleted)") for line in shared)
            if "stopped" in how:
                os.kill(max(_members(learner.pid)), signal.SIGSTOP)
            os.kill(learner.pid, signal.Signals[how.split()[0]])
        out, err = learner.communicate(timeout=60)
    assert ("interrupted" in out) == (how == "SIGINT")
    assert "Traceback" not in err
    assert "leaked" not in err
    deadline = time.monotonic() + 30
    while _members(learner.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _members(learner.pid) == []


PRELOADER = """
import os, sys
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv
from sb3_hrl.actors import ActorVecEnv
from sb3_hrl.hppo import HPPO

class Slow(CartPoleEnv):
    metadata = {**CartPoleEnv.metadata, "preload": ["takes_long"]}

    def __init__(self):
        super().__init__()
        print(os.getpid(), os.getppid(), "takes_long" in sys.modules, flush=True)

if __name__ == "__main__":
    env = ActorVecEnv([Slow] * 2)
    HPPO("MlpPolicy", env, n_steps=16, batch_size=16, n_epochs=1, n_actors=2, device="cpu").learn(32)
"""


def test_what_an_environment_names_is_imported_once_for_all_actors(tmp_path: Path) -> None:
    (tmp_path / "learner.py").write_text(PRELOADER)
    (tmp_path / "takes_long.py").write_text("import os\nprint('loaded by', os.getpid(), flush=True)\n")
    command = [sys.executable, str(tmp_path / "learner.py")]
    path = {**os.environ, "PYTHONPATH": str(tmp_path)}
    lines = subprocess.run(command, capture_output=True, text=True, check=True, env=path).stdout.splitlines()
    actors = {tuple(line.split()[:2]) for line in lines if line.endswith("True")}
    assert len(actors) == 2
    (server,) = {parent for _, parent in actors}
    assert [line for line in lines if "loaded" in line] == [f"loaded by {server}"]


# --- the VecEnv -------------------------------------------------------------------------------------------------------------


def test_without_actors_it_is_an_ordinary_vec_env() -> None:
    env, twin = _make_actor_env("Pendulum-v1", 3), make_vec_env("Pendulum-v1", 3, seed=1)
    assert isinstance(twin, DummyVecEnv)
    assert "_local" not in vars(env)  # nothing was built to be stepped
    assert env.get_attr("spec") == twin.get_attr("spec")
    assert env.env_is_wrapped(ActionHold) == [False] * 3
    assert np.array_equal(np.asarray(env.reset()), np.asarray(twin.reset()))
    for _ in range(5):
        actions = np.stack([env.action_space.sample() for _ in range(3)])
        for ours, theirs in zip(env.step(actions)[:3], twin.step(actions)[:3], strict=True):
            assert np.array_equal(np.asarray(ours), np.asarray(theirs))
    env.set_attr("marker", 5)
    assert env.get_attr("marker", [1]) == [5]
    assert env.env_method("get_wrapper_attr", "spec") == twin.get_attr("spec")
    env.close()


def test_while_actors_collect_it_is_not() -> None:
    env = _make_actor_env("Pendulum-v1")
    with _make_pool(env):
        env.reset()
        with pytest.raises(RuntimeError, match="in actor processes"):
            env.step(np.zeros((2, 1)))
    assert "_local" not in vars(env)


def test_a_function_or_an_id_makes_one_environment_for_each_actor() -> None:
    assert make_actor_env("CartPole-v1", 3).num_envs == 3
    assert make_actor_env(ScriptedEnv, 2).num_envs == 2
    assert make_actor_env("CartPole-v1", None) == "CartPole-v1"


def test_environments_that_exist_are_refused() -> None:
    with pytest.raises(ValueError, match=r"vec_env_cls=ActorVecEnv\) gives, got a DummyVecEnv: it exists already"):
        make_actor_env(make_vec_env("CartPole-v1", 4), 2)


@pytest.mark.parametrize("n_actors", [-1, 2.5, "2", True])
def test_a_number_of_actors(n_actors: Any) -> None:
    with pytest.raises(ValueError, match=r"n_actors: expected a number of processes >= 1, or 0 for none, got"):
        make_actor_env("CartPole-v1", n_actors)


def test_uneven_shares_are_refused_with_those_that_fit() -> None:
    check_shares(12, 4)
    with pytest.raises(ValueError, match=r"10 environments .* among 4 actors; n_envs: 8 or 12 .* n_actors: 1, 2, 5, 10$"):
        make_actor_env(_make_actor_env("CartPole-v1", 10), 4)
    with pytest.raises(ValueError, match=r"n_envs: 4 would fit, or n_actors: 1, 2$"):
        check_shares(2, 4)


def test_other_wrappers_are_refused() -> None:
    with pytest.raises(ValueError, match=r"a VecCheckNan cannot stand around .* give it as vec_env_wrapper"):
        _make_pool(VecCheckNan(_make_actor_env("Pendulum-v1")))


def test_a_wrapper_in_every_actor() -> None:
    wrapped, plain = (_make_actor_env("Pendulum-v1", vec_env_kwargs={"vec_env_wrapper": x}) for x in (VecCheckNan, None))
    with _make_pool(wrapped) as pool:
        in_actors: Any = wrapped.reset()
        pool.publish()
        assert pool.get().rewards.any()
    for env in (wrapped, plain):
        env.seed(1)  # which reaches what lies in the wrapper
        assert (in_actors == env.reset()).all()
    assert (in_actors != plain.reset()).all()


def test_a_hold_wants_its_position() -> None:
    env = _make_actor_env(ScriptedEnv, wrapper_class=ActionHold, wrapper_kwargs={"hold_seconds": 0.02})
    with pytest.raises(ValueError, match=r"^hold: expected the discount and the number of decisions"):
        _make_pool(env)
    with _make_pool(env, hold=lambda: (0.5, 3)) as pool:
        env.reset()
        pool.publish()
        trajectory = pool.get()
    assert trajectory.n_held[0, 0] == 2
    assert trajectory.rewards[0, 0] == 1 + 0.5 * 2
    del trajectory
    gc.collect()
