"""The engine: many environments of one task, stepped by native worker threads."""

import hashlib
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from sb3_hrl import native
from sb3_hrl.envs.task import Task
from sb3_hrl.errors import NativeError
from sb3_hrl.muscle.control import ControlSummary
from sb3_hrl.threads import available_threads

# A state: magic, version, the first bytes of the task's and the model's hash, length and hash of the rest, the rest.
_HEADER = struct.Struct("<8sI16s16sQ16s")
_MAGIC = b"SB3HRLST"
_VERSION = 1


class StepResult(NamedTuple):
    """
    One step of all environments. Every array is new, and the caller's. An episode that ended has been reset already:
    ``obs`` then belongs to the next one.

    :param obs: ``[E, n_obs]`` float64
    :param rewards: ``[E]`` float64
    :param terminated: ``[E]`` bool
    :param truncated: ``[E]`` bool, the time limit; may coincide with ``terminated``
    :param infos: ``[E, n_info]`` float64, before the reset; see ``Task.info_columns``
    :param terminal_obs: ``[E, n_obs]`` float64, before the reset; like what follows, except ``n_held`` and ``unstable``, it
        only counts where the episode ended, and is zero elsewhere
    :param n_held: ``[E]`` int32, for how many steps of the task the action was held
    :param episode_returns: ``[E]`` float64, undiscounted
    :param episode_lengths: ``[E]`` int64, in steps of the task
    :param reset_infos: ``[E, n_reset_info]`` float64
    :param unstable: ``[E]`` bool, the simulation broke down; see ``Engine``
    :param samples: ``[E, n_sample]`` float32, for the muscles' learner: packed torques per activation and desired torque of
        one randomly drawn substep; NaN where the physics broke down
    """

    obs: np.ndarray
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    infos: np.ndarray
    terminal_obs: np.ndarray
    n_held: np.ndarray
    episode_returns: np.ndarray
    episode_lengths: np.ndarray
    reset_infos: np.ndarray
    unstable: np.ndarray
    samples: np.ndarray


class Instability(NamedTuple):
    """
    How often and when last an environment's simulation broke down.

    :param env_index: which environment
    :param n_events: how often
    :param seed: the seed of its random numbers
    :param n_episode_steps: at which step of its episode, from 1
    :param n_total_steps: at which of all its steps, from 1
    """

    env_index: int
    n_events: int
    seed: int
    n_episode_steps: int
    n_total_steps: int


class EpisodeEnds(NamedTuple):
    """
    The episodes that ended in a rollout, by step and then by environment; ``n`` of them.

    :param step: the step of the rollout at which each one ended [n]
    :param env_index: its environment [n]
    :param episode_return: undiscounted sum of its rewards [n]
    :param episode_length: in steps of the task [n]
    :param is_unstable: whether its simulation broke down [n]
    :param seed: the environment's seed, where it broke down [n]
    :param n_total_steps: at which of all the environment's steps it broke down [n]
    :param terminal_obs: its last observation [n, n_obs], not normalised
    :param reset_infos: of the reset that followed [n, n_reset_info]
    """

    step: np.ndarray
    env_index: np.ndarray
    episode_return: np.ndarray
    episode_length: np.ndarray
    is_unstable: np.ndarray
    seed: np.ndarray
    n_total_steps: np.ndarray
    terminal_obs: np.ndarray
    reset_infos: np.ndarray


class RolloutResult(NamedTuple):
    """
    What a rollout gives beside what it writes into the rollout buffer. All arrays are fresh.

    :param terminated: [T, E], bool
    :param truncated: [T, E], bool
    :param infos: [T, E, n_info], float64
    :param last_obs: what the policy would see next [E, n_obs], float64
    :param raw_obs: after each step, not normalised [T, E, n_obs], float64; None without normalisation
    :param ends: the episodes that ended
    """

    terminated: np.ndarray
    truncated: np.ndarray
    infos: np.ndarray
    last_obs: np.ndarray
    raw_obs: np.ndarray | None
    ends: EpisodeEnds


class ObsNormalization(NamedTuple):
    """
    ``float32(clip((obs - means) / scales, -clip, clip))``, as ``VecNormalize`` does it.

    :param means: [n_obs], float64
    :param scales: [n_obs], float64
    :param clip: the largest absolute value
    """

    means: np.ndarray
    scales: np.ndarray
    clip: float


class Engine:
    """
    Many environments of one task, stepped by native worker threads.

    The number of threads changes no result. An environment that was given a seed goes through the same episodes wherever it
    stands; without seeds, all draw from one random seed, each from a stream of its own.

    A simulation that breaks down (a number that is not finite, or MuJoCo's own verdict) ends its episode: ``unstable`` and
    ``terminated`` are set, the reward of that step is zero, its infos are NaN and ``terminal_obs`` is the last finite
    observation. ``instabilities`` tells where and when.

    :param task: the task
    :param n_envs: number of environments
    :param n_threads: number of worker threads; by default as many as this process may use, and not more than environments
    :param seeds: one seed for each environment
    """

    def __init__(self, task: Task, n_envs: int, n_threads: int | None = None, seeds: Sequence[int] | None = None) -> None:
        _check_count("n_envs", n_envs)
        core = native.load()
        if n_threads is None:
            n_threads = min(available_threads(), n_envs)
        _check_count("n_threads", n_threads)
        self.task = task
        self.n_envs = int(n_envs)
        self.n_threads = int(n_threads)
        self.info_keys = task.info_keys
        self.reset_info_keys = task.reset_info_keys
        self.n_obs = int(task.observation_space.shape[0])
        self._is_choice = isinstance(task.action_space, spaces.Discrete)
        self.n_actions = 1 if self._is_choice else int(task.controls.shape[1])
        self._n_info = _n_columns(task.info_columns)
        self._n_reset_info = _n_columns(task.reset_info_columns)
        self._seeds: list[int | None] | None = None if seeds is None else self._checked_seeds(seeds, self.n_envs)
        entropy = int.from_bytes(np.random.SeedSequence().generate_state(2).tobytes(), "little")
        self._core: Any = core.Engine(task.spec.to_native(), self.n_envs, self.n_threads, entropy)
        self.n_sample = int(self._core.n_sample)

    # --- muscles --------------------------------------------------------------------------------------------------------

    def set_low_level(self, low_level: Any) -> None:
        """
        What turns torques into activations from now on, in every environment: no environment has a copy of it.

        :param low_level: a ``_native.LowLevel``; None for nothing, and then a task with joint targets refuses to step
        :raises ValueError: if it was made for other muscles, or the task has none
        """
        self._open().set_low_level(low_level)

    def summary(self, index: int) -> ControlSummary:
        """
        :param index: the environment
        :return: what its muscles did in the last step of the task
        """
        summary = np.empty(len(ControlSummary._fields))
        self._open().muscle_summary(self._checked_index(index), summary)
        return ControlSummary(*summary.tolist())

    # --- episodes -------------------------------------------------------------------------------------------------------

    def reset(
        self, indices: Sequence[int] | None = None, seeds: Sequence[int | None] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """
        Begin new episodes.

        :param indices: which environments, all by default
        :param seeds: a seed for each of them; None lets an environment go on with its random numbers
        :return: observations ``[len(indices), n_obs]`` and reset infos ``[len(indices), n_reset_info]``, float64
        """
        core = self._open()
        chosen = list(range(self.n_envs)) if indices is None else [self._checked_index(index) for index in indices]
        if len(set(chosen)) != len(chosen):
            raise ValueError(f"indices: expected each environment once, got {list(chosen)}")
        checked = [None] * len(chosen) if seeds is None else self._checked_seeds(seeds, len(chosen))
        if self._seeds is not None:  # the constructor's seeds count until something replaces them
            checked = [self._seeds[index] if seed is None else seed for index, seed in zip(chosen, checked, strict=True)]
            for index in chosen:
                self._seeds[index] = None
        obs = np.empty((len(chosen), self.n_obs))
        reset_infos = np.empty((len(chosen), self._n_reset_info))
        core.reset(chosen, checked, obs, reset_infos)
        return obs, reset_infos

    def step(self, actions: np.ndarray, n_hold: np.ndarray | None = None, gamma: float = 1.0) -> StepResult:
        """
        Take one action in every environment, and reset those whose episode ends.

        :param actions: ``[E, n_actions]``, C-contiguous, float32; float64 is copied to float32, as SB3's actions are. Of a
            discrete space: ``[E]``, int64
        :param n_hold: ``[E]`` int32, for how many steps of the task each action is held at most; None for one step
        :param gamma: discount of one step, for the rewards inside a hold: the reward is ``sum(gamma**i * reward_i)``
        :return: fresh arrays
        """
        core = self._open()
        if self._is_choice:
            actions = self._chosen_controls(actions)
        else:
            actions = _checked_array("actions", actions, (self.n_envs, self.n_actions), (np.float32, np.float64))
        if actions.dtype == np.float64:
            actions = actions.astype(np.float32)
        if n_hold is not None:
            n_hold = _checked_array("n_hold", n_hold, (self.n_envs,), (np.int32,))
            if n_hold.min(initial=1) < 1:
                raise ValueError(f"n_hold: expected numbers >= 1, got {n_hold.min()}")
        n = self.n_envs
        result = StepResult(
            obs=np.empty((n, self.n_obs)),
            rewards=np.empty(n),
            terminated=np.empty(n, np.uint8),
            truncated=np.empty(n, np.uint8),
            infos=np.empty((n, self._n_info)),
            terminal_obs=np.zeros((n, self.n_obs)),
            n_held=np.empty(n, np.int32),
            episode_returns=np.zeros(n),
            episode_lengths=np.zeros(n, np.int64),
            reset_infos=np.zeros((n, self._n_reset_info)),
            unstable=np.empty(n, np.uint8),
            samples=np.empty((n, self.n_sample), np.float32),
        )
        core.step(actions, n_hold, float(gamma), *result)
        return result._replace(
            terminated=result.terminated.view(np.bool_),
            truncated=result.truncated.view(np.bool_),
            unstable=result.unstable.view(np.bool_),
        )

    def _chosen_controls(self, actions: np.ndarray) -> np.ndarray:
        controls = self.task.controls
        actions = _checked_array("actions", actions, (self.n_envs,), (np.int64,))
        if actions.min() < 0 or actions.max() >= len(controls):
            raise ValueError(f"actions: expected numbers from 0 to {len(controls) - 1}, got {actions.tolist()}")
        return controls[actions]

    def collect_rollout(
        self,
        policy: Any,
        *,
        shard_size: int,
        n_hold: np.ndarray | None,
        gamma: float,
        normalization: ObsNormalization | None,
        noise_seed: int,
        first_decision: int,
        n_unstable_in_a_row: np.ndarray,
        max_unstable_in_a_row: int,
        observations: np.ndarray,
        actions: np.ndarray,
        rewards: np.ndarray,
        log_probs: np.ndarray,
        values: np.ndarray,
        n_held: np.ndarray,
        noise: np.ndarray | None = None,
        noise_sample_freq: int = 0,
        samples: np.ndarray | None = None,
    ) -> RolloutResult:
        """
        Take ``T`` decisions in every environment without coming back in between. Each worker takes ``shard_size`` environments
        at a time through the whole rollout.

        :param policy: a native policy
        :param shard_size: the results' last bits depend on it, and not on the number of threads
        :param n_hold: ``[T, E]`` int32, for how many steps each action is held at most; None for one step
        :param gamma: discount of one step inside a hold
        :param normalization: of what the policy sees
        :param noise_seed: of the actions' random numbers
        :param first_decision: how many decisions were drawn with this seed before
        :param n_unstable_in_a_row: ``[E]`` int64, how many of the last episodes broke down in each environment
        :param max_unstable_in_a_row: so many end the rollout with a ``NativeError``
        :param observations: ``[T, E, n_obs]`` float64, output; its first row is what the policy sees first, and an input
        :param actions: ``[T, E, n_actions]`` float32, output, not clipped; ``[T, E, 1]`` for a discrete space
        :param rewards: ``[T, E]`` float32, output
        :param log_probs: ``[T, E]`` float32, output
        :param values: ``[T, E]`` float32, output: the values of ``observations``
        :param n_held: ``[T, E]`` int64, output
        :param noise: ``[T, E, n_noise]`` float32, the random numbers themselves, for tests; by default they are drawn.
            Standard normal, or uniform in [0, 1) for a discrete space
        :param noise_sample_freq: after how many decisions gSDE draws again; zero for once in a rollout
        :param samples: ``[T, E, n_sample]`` float32, output for the muscles' learner; None if nobody wants it
        :return: the rest
        """
        core = self._open()
        shape = (len(observations), self.n_envs)
        if noise is not None:
            noise = _checked_array("noise", noise, (*shape, policy.n_noise), (np.float32,))
        terminated, truncated = np.empty(shape, np.uint8), np.empty(shape, np.uint8)
        infos = np.empty((*shape, self._n_info))
        last_obs = np.empty((self.n_envs, self.n_obs))
        raw_obs = None if normalization is None else np.empty((*shape, self.n_obs))
        ends = native.load().collect_rollout(
            engine=core,
            policy=policy,
            n_steps=shape[0],
            shard_size=shard_size,
            controls=self.task.controls,
            is_choice=self._is_choice,
            n_hold=n_hold,
            gamma=float(gamma),
            normalization=normalization,
            noise_seed=noise_seed,
            first_decision=first_decision,
            noise=noise,
            noise_sample_freq=noise_sample_freq,
            n_unstable_in_a_row=_checked_array("n_unstable_in_a_row", n_unstable_in_a_row, (self.n_envs,), (np.int64,)),
            max_unstable_in_a_row=max_unstable_in_a_row,
            observations=_checked_array("observations", observations, (*shape, self.n_obs), (np.float64,)),
            actions=_checked_array("actions", actions, (*shape, self.n_actions), (np.float32,)),
            rewards=_checked_array("rewards", rewards, shape, (np.float32,)),
            log_probs=_checked_array("log_probs", log_probs, shape, (np.float32,)),
            values=_checked_array("values", values, shape, (np.float32,)),
            n_held=_checked_array("n_held", n_held, shape, (np.int64,)),
            terminated=terminated,
            truncated=truncated,
            infos=infos,
            last_observations=last_obs,
            raw_observations=raw_obs,
            samples=samples if samples is None else _checked_array("samples", samples, (*shape, self.n_sample), (np.float32,)),
        )
        return RolloutResult(terminated.view(np.bool_), truncated.view(np.bool_), infos, last_obs, raw_obs, EpisodeEnds(*ends))

    def column_moments(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """
        :param numbers: ``[N, n]`` float64
        :return: ``numbers.mean(axis=0)`` and ``numbers.var(axis=0)``, to the last bit, by the worker threads
        """
        core = self._open()
        numbers = _checked_array("numbers", numbers, (len(numbers), *numbers.shape[1:]), (np.float64,))
        return native.load().column_moments(core, numbers, sum_block())

    def instabilities(self) -> list[Instability]:
        """
        :return: one record for each environment whose simulation has ever broken down
        """
        core = self._open()
        records = []
        for index in range(self.n_envs):
            record = core.instability(index)
            if record.n_events:
                records.append(Instability(index, record.n_events, record.seed, record.n_episode_steps, record.n_total_steps))
        return records

    # --- states ---------------------------------------------------------------------------------------------------------

    def get_state(self, index: int) -> bytes:
        """
        :param index: the environment
        :return: everything that its future depends on: physics, what the task reads of it, random numbers, counters
        """
        state = self._open().get_state(self._checked_index(index))
        return self._header(state) + state

    def set_state(self, index: int, state: bytes) -> None:
        """
        Continue from a state, bit for bit. It may come from another environment, engine or process, of the same task.

        :param index: the environment
        :param state: what ``get_state`` gave
        """
        core, index = self._open(), self._checked_index(index)
        if not isinstance(state, bytes):
            raise ValueError(f"state: expected bytes, got {type(state).__name__}")
        if len(state) < _HEADER.size or not state.startswith(_MAGIC):
            raise ValueError("state: these bytes are not a state of an environment")
        header, rest = state[: _HEADER.size], state[_HEADER.size :]
        _, version, task_hash, model_hash, n_bytes, digest = _HEADER.unpack(header)
        if version != _VERSION:
            raise ValueError(f"state: expected version {_VERSION}, got {version}")
        if n_bytes != len(rest) or digest != hashlib.sha256(rest).digest()[:16]:
            raise ValueError("state: it is damaged")
        if model_hash != bytes.fromhex(self.task.model_hash)[:16]:
            raise ValueError(f"state: it belongs to another model than {self.task.id}'s {self.task.model_path.name}")
        if task_hash != bytes.fromhex(self.task.task_hash)[:16]:
            raise ValueError(f"state: it belongs to another task than {self.task.id} with these options")
        core.set_state(index, rest)
        if self._seeds is not None:
            self._seeds[index] = None

    def _header(self, state: bytes) -> bytes:
        hashes = (bytes.fromhex(text)[:16] for text in (self.task.task_hash, self.task.model_hash))
        return _HEADER.pack(_MAGIC, _VERSION, *hashes, len(state), hashlib.sha256(state).digest()[:16])

    def qpos_qvel(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """
        :param index: the environment
        :return: copies of its positions and velocities
        """
        core, index = self._open(), self._checked_index(index)
        qpos, qvel = np.empty(core.n_qpos), np.empty(core.n_qvel)
        core.get_qpos_qvel(index, qpos, qvel)
        return qpos, qvel

    def physics(self, index: int) -> np.ndarray:
        """
        :param index: the environment
        :return: a copy of MuJoCo's integration state: positions and velocities, and also time, activations, mocap bodies, the
            task's memory
        """
        core, index = self._open(), self._checked_index(index)
        state = np.empty(core.n_physics)
        core.get_physics(index, state)
        return state

    def set_qpos_qvel(self, index: int, qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
        """
        Begin an episode from a given state, as gymnasium's ``reset`` and ``set_state`` do.

        :param index: the environment
        :param qpos: positions, float64
        :param qvel: velocities, float64
        :return: the observation
        """
        core, index = self._open(), self._checked_index(index)
        qpos = _checked_array("qpos", qpos, (core.n_qpos,), (np.float64,))
        qvel = _checked_array("qvel", qvel, (core.n_qvel,), (np.float64,))
        obs = np.empty(self.n_obs)
        core.set_qpos_qvel(index, qpos, qvel, obs)
        return obs

    def observe(self, index: int) -> np.ndarray:
        """
        :param index: the environment
        :return: its observation now; the same as the last step's or reset's
        """
        core, index = self._open(), self._checked_index(index)
        obs = np.empty(self.n_obs)
        core.observe(index, obs)
        return obs

    # --- the end --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the threads and free the simulations. Closing twice does no harm."""
        self._core = None

    def __reduce__(self) -> Any:
        raise TypeError("an Engine cannot be pickled: it owns threads; pickle its task and the states of its environments")

    def _open(self) -> Any:
        if self._core is None:
            raise NativeError("this Engine is closed")
        return self._core

    def _checked_index(self, index: Any) -> int:
        if isinstance(index, bool) or not isinstance(index, int | np.integer) or not 0 <= index < self.n_envs:
            raise ValueError(f"index: expected a whole number from 0 to {self.n_envs - 1}, got {index!r}")
        return int(index)

    @staticmethod
    def _checked_seeds(seeds: Sequence[int | None], n: int) -> list[int | None]:
        if len(seeds) != n:
            raise ValueError(f"seeds: expected {n}, got {len(seeds)}")
        for seed in seeds:
            is_whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
            if seed is not None and not (is_whole and 0 <= seed < 2**64):
                raise ValueError(f"seeds: expected whole numbers from 0 to 2**64 - 1, or None, got {seed!r}")
        return [None if seed is None else int(seed) for seed in seeds]


@cache
def sum_block() -> int:
    """
    :return: how many numbers NumPy adds in pairs before it begins anew: 8192 in NumPy 1; zero for all of them, as in NumPy 2
    """
    numbers = np.sin(np.arange(16000.0))
    in_pairs = numbers[:8000].sum() + numbers[8000:].sum()
    in_blocks = numbers[:8192].sum() + numbers[8192:].sum()
    assert in_pairs != in_blocks
    return 0 if numbers.sum() == in_pairs else 8192


def _n_columns(columns: Any) -> int:
    return sum(column.stop - column.start if isinstance(column, slice) else 1 for column in columns.values())


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name}: expected a whole number >= 1, got {value!r}")


def _checked_array(name: str, array: Any, shape: tuple[int, ...], dtypes: tuple[type, ...]) -> np.ndarray:
    if not isinstance(array, np.ndarray):
        raise ValueError(f"{name}: expected a numpy array, got {type(array).__name__}")
    if array.dtype not in dtypes:
        wanted = " or ".join(np.dtype(dtype).name for dtype in dtypes)
        raise ValueError(f"{name}: expected {wanted}, got {array.dtype}")
    if array.shape != shape:
        raise ValueError(f"{name}: expected the shape {shape}, got {array.shape}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{name}: expected a C-contiguous array, got one with strides {array.strides}")
    return array
