"""Small environments whose every number a test can foresee."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces


class ScriptedEnv(gym.Env):
    """
    Episodes of a fixed length whose t-th step (from 0) is worth ``t + 1``; it remembers the actions it got.

    :param n_steps: length of an episode
    :param ends_terminated: whether the last step terminates
    :param ends_truncated: whether the last step truncates
    :param dt: simulated seconds of a step; None for an environment that does not tell
    :param is_discrete: two discrete actions instead of a Box
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012

    def __init__(
        self,
        n_steps: int = 7,
        ends_terminated: bool = True,
        ends_truncated: bool = False,
        dt: float | None = 0.01,
        is_discrete: bool = False,
    ) -> None:
        self.observation_space = spaces.Box(-100.0, 100.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2) if is_discrete else spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.n_steps = n_steps
        self.ends = (ends_terminated, ends_truncated)
        self.t = 0
        self.actions: list[Any] = []
        if dt is not None:
            self.dt = dt

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.actions.append(action)
        self.t += 1
        is_last = self.t >= self.n_steps
        return self._obs(), float(self.t), is_last and self.ends[0], is_last and self.ends[1], {}

    def _obs(self) -> np.ndarray:
        return np.array([self.t, self.n_steps - self.t], dtype=np.float32)


class ImageEnv(gym.Env):
    """
    Episodes of nine pictures of noise, channels last; the action that a corner's brightness names is worth one.

    :param seed: of the noise
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012
    observation_space = spaces.Box(0, 255, (64, 64, 3), np.uint8)
    action_space = spaces.Discrete(4)

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._n_steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        self._n_steps = 0
        return self._draw(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = float(action == self._obs[0, 0, 0] // 64)
        self._n_steps += 1
        return self._draw(), reward, self._n_steps == 9, False, {}

    def _draw(self) -> np.ndarray:
        self._obs = self._rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)
        return self._obs
