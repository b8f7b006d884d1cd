"""What VecEnvs have in common that are one batch, and not many single environments."""

import time
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Protocol

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker
from stable_baselines3.common.monitor import Monitor, ResultsWriter
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices


class View(Protocol):
    """One environment of a batch, as far as it can be looked at on its own."""

    observation_space: gym.Space
    action_space: gym.Space
    metadata: dict[str, Any]

    def get_wrapper_attr(self, name: str) -> Any:
        """An attribute; ``AttributeError`` if there is none of that name."""

    def render(self) -> Any:
        """A picture of this environment."""

    def close(self) -> None:
        """Give back what only looking at it needed."""


class BatchVecEnv(VecEnv):
    """
    A VecEnv whose environments are reached through views, and whose episodes are monitored as by SB3's ``Monitor``.

    :param views: one for each environment
    :param env_id: what the monitor files say
    :param info_keywords: keys of ``info`` that go into ``episode`` and into the monitor files
    :param monitor_files: one file for each environment, or None for no files
    """

    # What ``env_is_wrapped`` says yes to: the batch does what these do.
    _wrappers: tuple[type[gym.Wrapper], ...] = (Monitor, OrderEnforcing, PassiveEnvChecker)
    # Whether ``close`` was called.
    is_closed = False

    def __init__(
        self, views: Sequence[View], env_id: str, info_keywords: Iterable[str], monitor_files: Sequence[str] | None
    ) -> None:
        self._views = views
        self._actions: np.ndarray | None = None
        super().__init__(len(views), views[0].observation_space, views[0].action_space)
        self.metadata = views[0].metadata
        self._info_keywords = tuple(info_keywords)
        self._start_time = time.time()
        header: dict[str, float | str] = {"t_start": self._start_time, "env_id": env_id}
        self._writers = [ResultsWriter(file, header, self._info_keywords) for file in monitor_files or ()]

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def _take_actions(self) -> np.ndarray:
        if self._actions is None:
            raise RuntimeError("step_wait was called without step_async")
        actions, self._actions = self._actions, None
        return actions

    def _end_episode(
        self,
        index: int,
        info: dict[str, Any],
        is_timeout: bool,
        terminal_obs: np.ndarray,
        episode_return: float,
        episode_length: int,
    ) -> None:
        """Put into ``info``, and into the monitor file, what a Monitor and a VecEnv say of an episode's last step."""
        info["TimeLimit.truncated"] = is_timeout
        info["terminal_observation"] = terminal_obs
        seconds = round(time.time() - self._start_time, 6)
        episode = {"r": round(float(episode_return), 6), "l": int(episode_length), "t": seconds}
        episode |= {key: info[key] for key in self._info_keywords}
        info["episode"] = episode
        if self._writers:
            self._writers[index].write_row(episode)

    def close(self) -> None:
        self.is_closed = True
        for writer in self._writers:
            writer.close()
        for view in self._views:
            view.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        return [view.render() for view in self._views]

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return [self._views[index].get_wrapper_attr(attr_name) for index in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        for index in self._get_indices(indices):
            setattr(self._views[index], attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        return [
            self._views[index].get_wrapper_attr(method_name)(*method_args, **method_kwargs)
            for index in self._get_indices(indices)
        ]

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        is_wrapped = any(issubclass(wrapper, wrapper_class) for wrapper in self._wrappers)
        return [is_wrapped for _ in self._get_indices(indices)]

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled: it owns threads; make another one, and hand get_state() to its "
            "set_state()"
        )
