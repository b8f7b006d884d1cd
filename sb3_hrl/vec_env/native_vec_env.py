"""An SB3 VecEnv over the native engine."""

import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, overload

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit
from stable_baselines3.common.vec_env import DummyVecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn

from sb3_hrl.carried import MUSCLE_SAMPLE, unpack
from sb3_hrl.envs.engine import Engine, ObsNormalization, RolloutResult, StepResult
from sb3_hrl.envs.task import load_task
from sb3_hrl.errors import NativeError
from sb3_hrl.muscle import Muscles
from sb3_hrl.vec_env.batch import BatchVecEnv
from sb3_hrl.vec_env.recipe import read_recipe
from sb3_hrl.wrappers import ActionHold, HoldSchedule

# One environment that breaks down again and again would train nothing but its own reset.
MAX_UNSTABLE_IN_A_ROW = 10
# What comes before the engine's state of an environment: decisions under a hold, breakdowns in a row.
_COUNTERS = struct.Struct("<qq")


class NativeVecEnv(BatchVecEnv):
    """
    Many simulations of one task on the worker threads of the native module, behind SB3's VecEnv interface.

    An environment that ends is reset in the same step; its infos hold ``terminal_observation``, ``TimeLimit.truncated`` and
    ``episode``, as from a monitored DummyVecEnv. Every array that ``step`` returns is new. The number of threads changes no
    result. ``render``, and attributes that only the gymnasium environment has, come from a Python twin that is put into the
    simulation's state; it is a copy to look at.

    :param env: a registered id with a native form, a task's YAML file, or, as ``make_vec_env(..., vec_env_cls=NativeVecEnv)``
        calls it, a list of functions that each build one; these then say all that follows but ``n_threads``
    :param n_envs: number of environments
    :param env_kwargs: arguments of the environment
    :param max_episode_steps: the time limit; by default the registered one
    :param hold: arguments of ``ActionHold``, for a native hold; None for no hold
    :param info_keywords: keys of ``info`` that go into ``episode`` and into the monitor files
    :param monitor_files: one file for each environment, or None for no files
    :param render_mode: as gymnasium's
    :param n_threads: worker threads; by default as many as the CPU affinity allows
    """

    def __init__(
        self,
        env: str | Sequence[Callable[[], gym.Env]],
        n_envs: int = 1,
        env_kwargs: Mapping[str, Any] | None = None,
        max_episode_steps: int | None = None,
        hold: Mapping[str, Any] | None = None,
        info_keywords: Iterable[str] = (),
        monitor_files: Sequence[str] | None = None,
        render_mode: str | None = "rgb_array",
        n_threads: int | None = None,
    ) -> None:
        if not isinstance(env, str):
            venv = DummyVecEnv(list(env))
            recipe = read_recipe(venv)
            venv.close()
            self.__init__(**recipe._asdict(), n_threads=n_threads)  # type: ignore[misc]
            return
        self.task = load_task(env, dict(env_kwargs or {}), max_episode_steps)
        self._env_id, self._env_kwargs = env, dict(env_kwargs or {})
        render_mode = self._env_kwargs.pop("render_mode", render_mode)
        self._max_episode_steps, self._render_mode = max_episode_steps, render_mode
        self._hold = None if hold is None else NativeHold(hold, self.task.dt, n_envs)
        self._engine = Engine(self.task, n_envs, n_threads)
        views = [EnvView(self, index) if hold is None else HeldEnvView(self, index) for index in range(n_envs)]
        self._wrappers = (*self._wrappers, TimeLimit, *(() if hold is None else (ActionHold,)))
        self._muscles: Muscles | None = None
        self._n_unstable_in_a_row = np.zeros(n_envs, dtype=np.int64)
        super().__init__(views, env, info_keywords, monitor_files)

    def reset(self) -> VecEnvObs:
        obs, reset_infos = self._engine.reset(seeds=self._seeds)
        self._set_reset_infos(range(self.num_envs), reset_infos)
        self._reset_seeds()
        self._reset_options()
        return obs

    def step_wait(self) -> VecEnvStepReturn:
        actions, carried = unpack(self._take_actions())
        if carried is not None and carried.muscles is not None:
            self.set_muscles(carried.muscles)
        n_hold, gamma = (None, 1.0) if self._hold is None else self._hold.next_decision(carried)
        result = self._engine.step(actions, n_hold, gamma)
        dones = result.terminated | result.truncated
        infos = self._make_infos(result, dones)
        return result.obs, result.rewards.astype(np.float32), dones, infos

    def _make_infos(self, result: StepResult, dones: np.ndarray) -> list[dict[str, Any]]:
        infos = self._plain_infos(result.infos, result.n_held)
        if result.samples.size:
            for info, sample in zip(infos, result.samples, strict=True):
                info[MUSCLE_SAMPLE] = sample
        ended = np.flatnonzero(dones).tolist()
        if not ended:
            return infos
        is_timeout = result.truncated & ~result.terminated
        for index in ended:
            episode = result.episode_returns[index], result.episode_lengths[index]
            self._end_episode(index, infos[index], bool(is_timeout[index]), result.terminal_obs[index], *episode)
        self._set_reset_infos(ended, result.reset_infos[ended])
        self._n_unstable_in_a_row[ended] = np.where(result.unstable[ended], self._n_unstable_in_a_row[ended] + 1, 0)
        if result.unstable.any():
            for event in self._engine.instabilities():
                if result.unstable[event.env_index]:
                    infos[event.env_index]["unstable"] = True
                    self._report_unstable(event.env_index, event.seed, event.n_total_steps)
        return infos

    def _plain_infos(self, rows: np.ndarray, n_held: np.ndarray) -> list[dict[str, Any]]:
        """Infos of steps, as they are where no episode ends."""
        infos = self.task.infos(rows)
        for info in infos:
            info["TimeLimit.truncated"] = False
        if self._hold is not None:
            for info, number in zip(infos, n_held.tolist(), strict=True):
                info["n_held"] = number
        return infos

    def _end_episode(
        self,
        index: int,
        info: dict[str, Any],
        is_timeout: bool,
        terminal_obs: np.ndarray,
        episode_return: float,
        episode_length: int,
    ) -> None:
        super()._end_episode(index, info, is_timeout, terminal_obs, episode_return, episode_length)
        if self._hold is not None:
            info["hold_episode"] = info["episode"]

    def _set_reset_infos(self, indices: Iterable[int], rows: np.ndarray) -> None:
        for index, row in zip(indices, rows, strict=True):
            self.reset_infos[index] = self.task.reset_info(row)

    def _report_unstable(self, index: int, seed: int, n_total_steps: int) -> None:
        where = f"{self._env_id}, environment {index} (seed {seed}, step {n_total_steps})"
        if self._n_unstable_in_a_row[index] >= MAX_UNSTABLE_IN_A_ROW:
            raise NativeError(f"{where}: the simulation broke down in {MAX_UNSTABLE_IN_A_ROW} episodes in a row")
        warnings.warn(f"{where}: the simulation broke down, and was reset", RuntimeWarning)

    @property
    def n_threads(self) -> int:
        """How many threads step the environments."""
        return self._engine.n_threads

    def collect_rollout(
        self, policy: Any, n_steps: int, normalization: ObsNormalization | None, **arguments: Any
    ) -> RolloutResult:
        """
        Take ``n_steps`` decisions of a native policy in every environment, all of them in the workers.

        :param policy: a native policy
        :param n_steps: how many
        :param normalization: of what the policy sees
        :param arguments: of ``Engine.collect_rollout``
        :return: what it gives; ``replay`` then says what each step would have returned
        """
        n_hold, gamma = (None, 1.0) if self._hold is None else self._hold.next_decisions(n_steps)
        result = self._engine.collect_rollout(
            policy,
            n_hold=n_hold,
            gamma=gamma,
            normalization=normalization,
            n_unstable_in_a_row=self._n_unstable_in_a_row,
            max_unstable_in_a_row=MAX_UNSTABLE_IN_A_ROW,
            **arguments,
        )
        ends = result.ends
        self._set_reset_infos(ends.env_index.tolist(), ends.reset_infos)
        for index, is_unstable, seed, n_total_steps in zip(
            *(column.tolist() for column in (ends[1], *ends[4:7])), strict=True
        ):
            self._n_unstable_in_a_row[index] = self._n_unstable_in_a_row[index] + 1 if is_unstable else 0
            if is_unstable:
                self._report_unstable(index, seed, n_total_steps)
        return result

    def replay(
        self, result: RolloutResult, n_held: np.ndarray, terminal_obs: np.ndarray
    ) -> Iterator[tuple["LazyInfos", list[int]]]:
        """
        The infos of a rollout, step by step; episodes that ended are written into the monitor files on the way.

        :param result: of the rollout
        :param n_held: how long each decision lasted [T, E]
        :param terminal_obs: like those of the result, perhaps normalised
        :return: for each step the infos, and the environments whose episode ended
        """
        ends, first = result.ends, 0
        n_steps = len(result.infos)
        for step, stop in enumerate(np.searchsorted(ends.step, np.arange(n_steps), side="right").tolist()):
            infos, ended = LazyInfos(self.num_envs, partial(self._plain_infos, result.infos[step], n_held[step])), []
            for row in range(first, stop):
                index = int(ends.env_index[row])
                ended.append(index)
                is_timeout = bool(result.truncated[step, index] and not result.terminated[step, index])
                episode = ends.episode_return[row], ends.episode_length[row]
                self._end_episode(index, infos[index], is_timeout, terminal_obs[row], *episode)
                if ends.is_unstable[row]:
                    infos[index]["unstable"] = True
            first = stop
            yield infos, ended

    def set_muscles(self, muscles: Muscles) -> None:
        """
        :param muscles: what turns torques into activations from now on, in all environments
        """
        if self.task.muscles is None or self.task.muscles.actuation != "muscle_hrl":
            return
        muscles.check_body(self.task.body, self.task.id)
        if self._muscles is None or self._muscles.version != muscles.version:
            self._engine.set_low_level(muscles.to_native())
            self._muscles = muscles

    @property
    def recipe(self) -> dict[str, Any]:
        """Arguments that make the same environments, without the monitor files."""
        hold = None if self._hold is None else self._hold.arguments
        return {
            "env": self._env_id,
            "n_envs": self.num_envs,
            "env_kwargs": self._env_kwargs,
            "max_episode_steps": self._max_episode_steps,
            "hold": hold,
            "info_keywords": list(self._info_keywords),
        }

    def close(self) -> None:
        self._engine.close()
        super().close()

    def get_state(self, indices: VecEnvIndices = None) -> list[bytes]:
        """
        :param indices: which environments
        :return: all that decides how each one goes on: simulation, random stream, counters
        """
        return [self._counters(index) + self._engine.get_state(index) for index in self._get_indices(indices)]

    def set_state(self, states: Sequence[bytes], indices: VecEnvIndices = None) -> None:
        """
        Go on as another NativeVecEnv of the same task would, bit for bit.

        :param states: what ``get_state`` returned
        :param indices: which environments
        """
        for index, state in zip(self._get_indices(indices), states, strict=True):
            self._engine.set_state(index, state[_COUNTERS.size :])
            n_decisions, self._n_unstable_in_a_row[index] = _COUNTERS.unpack(state[: _COUNTERS.size])
            if self._hold is not None:
                self._hold.decisions[index] = n_decisions

    def _counters(self, index: int) -> bytes:
        n_decisions = 0 if self._hold is None else int(self._hold.decisions[index])
        return _COUNTERS.pack(n_decisions, int(self._n_unstable_in_a_row[index]))


class LazyInfos(Sequence[dict[str, Any]]):
    """
    The infos of a step, built when one is first looked at: most callbacks look at none.

    :param n_envs: how many
    :param build: makes them
    """

    def __init__(self, n_envs: int, build: Callable[[], list[dict[str, Any]]]) -> None:
        self._n_envs, self._build = n_envs, build

    @cached_property
    def _infos(self) -> list[dict[str, Any]]:
        return self._build()

    def __len__(self) -> int:
        return self._n_envs

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        return self._infos[index]


class NativeHold:
    """
    ``ActionHold`` for a whole batch. The counters advance together, since a step of the batch is one decision of each.

    :param arguments: of ``ActionHold``
    :param task_dt: simulated seconds of a step
    :param n_envs: number of environments
    """

    def __init__(self, arguments: Mapping[str, Any], task_dt: float, n_envs: int) -> None:
        self.arguments = dict(arguments)
        schedule_arguments = {name: value for name, value in arguments.items() if name != "dt"}
        self.schedule = HoldSchedule.from_arguments(**schedule_arguments)
        self.dt = arguments.get("dt") or task_dt
        self.gamma = 1.0
        self.decisions = np.zeros(n_envs, dtype=np.int64)

    def next_decision(self, carried: Any) -> tuple[np.ndarray, float]:
        """
        :param carried: what the actions carried, or None: then it counts as a decision
        :return: for how many steps each action is to be held [E], int32, and the discount inside the hold
        """
        if carried is not None and carried.hold_decisions is not None:
            return np.full(
                len(self.decisions), self.schedule.n_hold(carried.hold_decisions, self.dt), dtype=np.int32
            ), self.gamma
        n_hold = np.array([self.schedule.n_hold(decisions, self.dt) for decisions in self.decisions.tolist()], dtype=np.int32)
        self.decisions += 1
        return n_hold, self.gamma

    def next_decisions(self, n_steps: int) -> tuple[np.ndarray, float]:
        """
        :param n_steps: how many decisions each environment takes
        :return: for how many steps each action is to be held [T, E], int32, and the discount inside the hold
        """
        decisions = self.decisions + np.arange(n_steps)[:, None]
        different, where = np.unique(decisions, return_inverse=True)
        n_hold = np.array([self.schedule.n_hold(number, self.dt) for number in different.tolist()], dtype=np.int32)
        self.decisions += n_steps
        return n_hold[where].reshape(decisions.shape), self.gamma


class EnvView:
    """
    One environment of the batch, as far as it can be looked at on its own.

    :param venv: the batch
    :param index: which one
    """

    def __init__(self, venv: NativeVecEnv, index: int) -> None:
        self._venv, self._index = venv, index
        self._twin: gym.Env | None = None
        task = venv.task
        self.observation_space, self.action_space, self.dt = task.observation_space, task.action_space, task.dt
        self.muscle_task, self.render_mode = task, venv._render_mode
        self.spec = None if venv._env_id.endswith((".yaml", ".yml")) else gym.spec(venv._env_id)
        self.metadata = dict(task.metadata)

    @property
    def twin(self) -> gym.Env:
        """The gymnasium environment in the simulation's state; made when it is first asked for."""
        if self.spec is None:
            raise AttributeError(f"{self._venv.task.id} is a task file: it has no gymnasium environment to look at")
        if self._twin is None:
            self._twin = gym.make(self.spec.id, render_mode=self.render_mode, **self._venv._env_kwargs)
            self._twin.reset()
        twin: Any = self._twin.unwrapped
        if hasattr(twin, "set_physics"):  # with targets and the task's memory
            twin.set_physics(self._venv._engine.physics(self._index))
        else:
            twin.set_state(*self._venv._engine.qpos_qvel(self._index))
        return self._twin

    def set_muscles(self, muscles: Muscles) -> None:
        """Those of the whole batch: it has one."""
        self._venv.set_muscles(muscles)

    def render(self) -> Any:
        """A picture of this environment (or, in human mode, its window)."""
        return self.twin.render()

    def set_state(self, qpos: np.ndarray, qvel: np.ndarray) -> None:
        """
        Begin an episode in a state. Gymnasium's ``MujocoEnv.set_state`` leaves time, targets and counters as they are; here
        they begin anew, and so does the task's memory.
        """
        self._venv._engine.set_qpos_qvel(self._index, qpos, qvel)

    def get_wrapper_attr(self, name: str) -> Any:
        """An attribute of this view, or else of the gymnasium environment."""
        if hasattr(self, name):
            return getattr(self, name)
        return self.twin.get_wrapper_attr(name)

    def close(self) -> None:
        """Close the twin, if there is one."""
        if self._twin is not None:
            self._twin.close()
            self._twin = None


class HeldEnvView(EnvView):
    """The same with what ``ActionHold`` has."""

    def __init__(self, venv: NativeVecEnv, index: int) -> None:
        super().__init__(venv, index)
        self.metadata = self._native_hold.schedule.adapt_metadata(self.metadata, self._native_hold.dt)

    @property
    def _native_hold(self) -> NativeHold:
        assert self._venv._hold is not None
        return self._venv._hold

    @property
    def gamma(self) -> float:
        """The discount inside the hold."""
        return self._native_hold.gamma

    @property
    def hold_decisions(self) -> int:
        """How many decisions this environment has taken."""
        return int(self._native_hold.decisions[self._index])

    def n_hold(self, decisions: int) -> int:
        """For how many steps the next action is held after so many decisions."""
        return self._native_hold.schedule.n_hold(decisions, self._native_hold.dt)

    def configure_hold(self, gamma: float, decisions: int) -> None:
        """Take over the model's discount and position in the annealing."""
        self._native_hold.gamma = gamma
        self._native_hold.decisions[self._index] = decisions
