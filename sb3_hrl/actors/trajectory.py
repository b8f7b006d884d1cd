"""What an actor hands over: a piece of experience, ``T`` steps of its ``E`` environments."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecNormalize

from sb3_hrl.actors.memory import Field
from sb3_hrl.rollout.normalization import update_normalization

Obs = np.ndarray | dict[str, np.ndarray]


class ActorState(NamedTuple):
    """
    Where an actor is between two trajectories: another process goes on from here as it would. Plain data.

    :param noise_seed: of its actions' random numbers
    :param sequence: the number of its next trajectory
    :param missing: the names of what restarts
    :param structure: of its environments and what they showed last; see ``sb3_hrl.checkpoint.tree``
    :param arrays: of these
    """

    noise_seed: int
    sequence: int
    missing: list[str]
    structure: bytes
    arrays: bytes


class Trajectory(NamedTuple):
    """
    ``n_steps`` steps of one actor's environments.

    The arrays are views of shared memory that belong to the pool: they hold until ``ActorPool.release``. ``terminal_obs`` and
    ``infos`` are the receiver's.

    :param actor: who collected it
    :param sequence: 0, 1, 2, ... of this actor; a replacement goes on where the actor that it replaces has stopped
    :param version: of the weights that acted
    :param slot: where it lies; for the pool
    :param envs: which of all environments
    :param obs: what the policy saw, and the observation after the last step [T+1, E, ...]; for Dict spaces a dict of such
    :param actions: as the policy gave them [T, E, ...]
    :param log_probs: of these actions [T, E], float32
    :param values: of the observations [T, E], float32
    :param last_values: of the observation after the last step [E], float32
    :param rewards: as the outermost wrapper gave them [T, E], float32
    :param episode_starts: whether an episode starts with the observation [T+1, E], bool
    :param n_held: steps that each decision lasted [T, E], int64
    :param timeouts: whether a time limit has ended the episode in this step, and its last observation is known [T, E], bool
    :param terminal_obs: last observations of the timeouts, in the order of ``np.nonzero(timeouts)`` [K, ...]
    :param raw_obs: observations after each step, as the environments gave them to a ``VecNormalize`` [T, E, ...]; None without
    :param raw_rewards: rewards as they gave them [T, E], float32; None without a ``VecNormalize``
    :param infos: step, environment (of this actor's) and info of each episode that ended
    :param state: where the actor is after it; None if nobody keeps states
    :param collect_seconds: what it took
    :param wait_seconds: how long the actor had waited before, for a place to put it
    """

    actor: int
    sequence: int
    version: int
    slot: int
    envs: slice
    obs: Obs
    actions: np.ndarray
    log_probs: np.ndarray
    values: np.ndarray
    last_values: np.ndarray
    rewards: np.ndarray
    episode_starts: np.ndarray
    n_held: np.ndarray
    timeouts: np.ndarray
    terminal_obs: Obs
    raw_obs: Obs | None
    raw_rewards: np.ndarray | None
    infos: list[tuple[int, int, dict[str, Any]]]
    state: ActorState | None
    collect_seconds: float
    wait_seconds: float

    @property
    def dones(self) -> np.ndarray:
        """Whether an episode ended with the step [T, E], bool."""
        return self.episode_starts[1:]


def trajectory_fields(
    n_steps: int,
    n_envs: int,
    observation_space: spaces.Space,
    action_space: spaces.Space,
    raw_space: spaces.Space | None,
    channels_last: bool = False,
) -> dict[str, Field]:
    """
    :param n_steps: T
    :param n_envs: E
    :param observation_space: what the policy sees
    :param action_space: what it gives
    :param raw_space: what a ``VecNormalize`` gets; None without one
    :param channels_last: whether ``obs``, images [C, H, W], lie in memory as [H, W, C]
    :return: the arrays that the actor fills
    """

    def field(n_rows: int, dtype: Any, shape: tuple[int, ...] | None = ()) -> Field:
        assert shape is not None
        return Field((n_rows, n_envs, *shape), np.dtype(dtype))

    fields = {name: field(n_steps, np.float32) for name in ("log_probs", "values", "rewards")}
    fields |= {
        "actions": field(n_steps, action_space.dtype, action_space.shape),
        "last_values": Field((n_envs,), np.dtype(np.float32)),
        "episode_starts": field(n_steps + 1, np.bool_),
        "n_held": field(n_steps, np.int64),
        "timeouts": field(n_steps, np.bool_),
    }
    for name, n_rows, space in (("obs", n_steps + 1, observation_space), ("raw_obs", n_steps, raw_space)):
        if isinstance(space, spaces.Dict):
            fields |= {f"{name}/{key}": field(n_rows, part.dtype, part.shape) for key, part in space.items()}
        elif space is not None:
            fields[name] = field(n_rows, space.dtype, space.shape)
    if channels_last:
        fields["obs"] = fields["obs"]._replace(dense_axis=2)
    if raw_space is not None:
        fields["raw_rewards"] = field(n_steps, np.float32)
    return fields


def read_obs(arrays: dict[str, np.ndarray], name: str) -> Any:
    """
    :param arrays: of a trajectory
    :param name: ``obs`` or ``raw_obs``
    :return: the array, or a dict of arrays; None if there is none
    """
    parts = {key.partition("/")[2]: array for key, array in arrays.items() if key.startswith(f"{name}/")}
    return parts or arrays.get(name)


def learn_statistics(normalize: VecNormalize, trajectories: Sequence[Trajectory]) -> None:
    """
    Let the learner's ``VecNormalize`` learn from trajectories; the actors' have the statistics of the weights.

    :param normalize: the learner's
    :param trajectories: of actors that follow one another, in their order
    """
    (first, *_), last = trajectories, trajectories[-1]
    rewards, starts = join(trajectories, "raw_rewards"), join(trajectories, "episode_starts")
    envs = slice(first.envs.start, last.envs.stop)
    if rewards.shape[1] != envs.stop - envs.start:
        raise ValueError(f"expected trajectories of actors that follow one another, got {[t.actor for t in trajectories]}")
    # An episode that begins here has no return yet, even if the last one has not ended: its actor was replaced.
    normalize.returns[envs][starts[0]] = 0.0
    raw_obs = join(trajectories, "raw_obs")
    if isinstance(raw_obs, dict):
        raw_obs = [{key: array[step] for key, array in raw_obs.items()} for step in range(len(rewards))]
    update_normalization(normalize, raw_obs, rewards, starts[1:], envs)


def join(trajectories: Sequence[Trajectory], name: str) -> Any:
    """
    :param trajectories: of several actors, in their order
    :param name: of an array [T, E, ...]
    :return: that of all of them [T, n_envs, ...], newly made; a dict for observations of a Dict space
    """
    parts = [getattr(trajectory, name) for trajectory in trajectories]
    if isinstance(parts[0], dict):
        return {key: np.concatenate([part[key] for part in parts], axis=1) for key in parts[0]}
    return np.concatenate(parts, axis=1)
