"""
How a pool of actors bears it that one of them is killed again and again.

    python -m benchmarks.reliability.actors [--seconds 120] [--period 5] [--n-actors 4] [--env Hopper-v5] [--out FILE]
    python -m benchmarks.reliability.actors --env procgen-coinrun-v0 --limit 10

First the actors collect undisturbed, then with a SIGKILL for one of them every ``--period`` seconds. The learner only takes
what they deliver, and checks it: every observation says which process has made it, at which of its steps, after which action,
so that a trajectory that is torn, doubled or lost is seen. The exit code is 1 if there is one, if an actor took longer than
``--limit`` seconds to come back, or never came, or if less than 80 % of the throughput is left.
"""

import argparse
import json
import os
import signal
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecEnv

from sb3_hrl.actors import ActorPool, ActorVecEnv, Trajectory
from sb3_hrl.actors.process import READY
from sb3_hrl.registry import register_envs

N_TAGS = 3
LIMIT_SECONDS = 2.0
MIN_SHARE = 0.8


class Tagged(gym.Wrapper):
    """
    Puts three numbers behind every observation: the process that has made it, the steps of this environment in that process,
    and the sum of the action that led to it. In an image they are the last bytes.

    :param env: with observations that are a vector, or an image of bytes
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        inner = env.observation_space
        assert isinstance(inner, spaces.Box)
        self._is_image = inner.dtype == np.uint8
        if not self._is_image:
            self.observation_space = spaces.Box(-np.inf, np.inf, (inner.shape[0] + N_TAGS,), np.float64)
        self._n_steps = 0

    def _tag(self, obs: np.ndarray, action: float) -> np.ndarray:
        tags = np.array([os.getpid(), self._n_steps, action])
        if not self._is_image:
            return np.concatenate((obs, tags))
        image = obs.copy()
        image.reshape(-1)[-tags.nbytes :] = tags.view(np.uint8)
        return image

    def reset(self, **kwargs: Any) -> tuple[np.ndarray, dict[str, Any]]:
        obs, info = self.env.reset(**kwargs)
        return self._tag(obs, 0.0), info

    def step(self, action: Any) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._n_steps += 1
        return self._tag(obs, float(np.sum(action))), reward, terminated, truncated, info


def read_tags(obs: np.ndarray) -> np.ndarray:
    """
    :param obs: of a trajectory, [T + 1, E, ...]
    :return: what ``Tagged`` wrote, [T + 1, E, 3]
    """
    n_tags = N_TAGS * 8 // obs.dtype.itemsize
    return np.ascontiguousarray(obs.reshape(*obs.shape[:2], -1)[:, :, -n_tags:]).view(np.float64)


class Audit:
    """
    Checks one trajectory after the other.

    :param action_space: of the environments
    :param keeps_states: whether a replacement has to go on where the actor before it was
    """

    def __init__(self, action_space: spaces.Space, keeps_states: bool = False) -> None:
        self._space, self._keeps_states = action_space, keeps_states
        self._sequences: dict[int, int] = {}
        self._tags: dict[int, np.ndarray] = {}
        self.n_trajectories = 0
        self.problems: list[str] = []

    def check(self, trajectory: Trajectory) -> None:
        """
        :param trajectory: the next one
        """
        actor, where = trajectory.actor, f"actor {trajectory.actor}, trajectory {trajectory.sequence}"
        assert isinstance(trajectory.obs, np.ndarray)
        tags = read_tags(trajectory.obs)
        # What a replacement begins with was seen by the one before; at the very beginning whether or not states are kept.
        is_shown_before = self._keeps_states or trajectory.sequence == 0
        process, n_steps = tags[int(is_shown_before) :, :, 0], tags[:, :, 1]
        self.n_trajectories += 1
        if trajectory.sequence != self._sequences.get(actor, -1) + 1:
            self.problems.append(f"{where}: comes after {self._sequences.get(actor)}")
        if len(np.unique(process)) != 1 or not (np.diff(n_steps, axis=0) == 1).all():
            self.problems.append(f"{where}: torn")
        last = self._tags.get(actor)
        goes_on = last is not None and (self._keeps_states or last[0, 0] == process[0, 0])
        if not np.array_equal(n_steps[0], last[:, 1] if goes_on and last is not None else np.zeros_like(n_steps[0])):
            self.problems.append(f"{where}: does not go on where the last one stopped")
        actions = trajectory.actions
        if isinstance(self._space, spaces.Box):
            actions = np.clip(actions, self._space.low, self._space.high)
        actions = actions.reshape(*actions.shape[:2], -1).sum(axis=-1, dtype=np.float32)
        after_reset = trajectory.dones
        if not np.array_equal(np.where(after_reset, 0.0, actions), tags[1:, :, 2].astype(np.float32)):
            self.problems.append(f"{where}: its actions are not those that the environments got")
        self._sequences[actor], self._tags[actor] = trajectory.sequence, tags[-1].copy()


class Result(NamedTuple):
    """
    What came out.

    :param undisturbed: steps per second without kills
    :param disturbed: steps per second with them
    :param share: the second by the first
    :param n_kills: how many actors were killed
    :param n_restarts: how many were replaced
    :param back_seconds: how long it took until a successor was ready, the median
    :param back_seconds_max: the longest
    :param n_trajectories: how many were checked
    :param problems: what was wrong with them
    """

    undisturbed: float
    disturbed: float
    share: float
    n_kills: int
    n_restarts: int
    back_seconds: float
    back_seconds_max: float
    n_trajectories: int
    problems: list[str]


class TimedPool(ActorPool):
    """Notes when an actor that was killed is back."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.killed_at: dict[int, float] = {}  # of those that are not back yet
        self.back_seconds: list[float] = []

    def kill(self, actor: int) -> None:
        """
        :param actor: who is killed
        """
        os.kill(self._workers[actor].process.pid, signal.SIGKILL)
        self.killed_at[actor] = time.perf_counter()

    def _take(self, worker: Any, kind: str, content: Any) -> None:
        super()._take(worker, kind, content)
        if kind == READY and worker.index in self.killed_at:
            self.back_seconds.append(time.perf_counter() - self.killed_at.pop(worker.index))


def make_env(env_id: str, n_envs: int) -> VecEnv:
    """
    :param env_id: an environment with vectors or images
    :param n_envs: how many
    :return: tagged ones, for actors
    """
    return make_vec_env(env_id, n_envs, seed=0, wrapper_class=Tagged, vec_env_cls=ActorVecEnv)  # type: ignore[arg-type]


def run(env_id: str, n_actors: int, n_envs: int, n_steps: int, seconds: float, period: float) -> Result:
    """
    :param env_id: an environment with vectors or images
    :param n_actors: number of actors
    :param n_envs: number of environments
    :param n_steps: length of a trajectory
    :param seconds: how long each half lasts
    :param period: seconds between two kills in the second half
    :return: what came out
    """
    env = make_env(env_id, n_envs)
    policy = ActorCriticPolicy(env.observation_space, env.action_space, lambda _: 0.0)
    audit, n_kills = Audit(env.action_space), 0
    rates: list[float] = []
    pool = TimedPool(env, policy, n_actors, n_steps, noise_seed=0, max_restarts=sys.maxsize)
    with pool:
        env.reset()
        pool.publish()
        for is_disturbed in (False, True):
            start = now = time.perf_counter()
            next_kill = start + period if is_disturbed else float("inf")
            n_collected = 0
            while now < start + seconds:
                trajectory = pool.get()
                audit.check(trajectory)
                n_collected += trajectory.rewards.size
                pool.release(trajectory)
                pool.publish()
                now = time.perf_counter()
                if next_kill <= now < start + seconds:
                    pool.kill(n_kills % n_actors)
                    n_kills, next_kill = n_kills + 1, next_kill + period
            rates.append(n_collected / (now - start))
        missing = sorted(pool.killed_at)
    undisturbed, disturbed = rates
    return Result(
        undisturbed,
        disturbed,
        disturbed / undisturbed,
        n_kills,
        pool.n_restarts,
        statistics.median(pool.back_seconds),
        max(pool.back_seconds),
        audit.n_trajectories,
        [*audit.problems, *(f"actor {actor}: has not come back" for actor in missing)],
    )


def main() -> int:
    """
    :return: the exit code
    """
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--env", default="Hopper-v5")
    parser.add_argument("--n-actors", type=int, default=4)
    parser.add_argument("--n-envs", type=int, default=16)
    parser.add_argument("--n-steps", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--period", type=float, default=5.0)
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", "actor", RuntimeWarning)
    register_envs()
    result = run(arguments.env, arguments.n_actors, arguments.n_envs, arguments.n_steps, arguments.seconds, arguments.period)
    text = json.dumps(result._asdict(), indent=2)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")
    return int(bool(result.problems) or result.back_seconds_max > arguments.limit or result.share < MIN_SHARE)


if __name__ == "__main__":
    sys.exit(main())
