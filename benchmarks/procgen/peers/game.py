"""What the peers share: a gymnasium environment over procgen's own batch of one, and options. Knows nothing of sb3_hrl."""

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from procgen import ProcgenGym3Env


def read_arguments() -> argparse.Namespace:
    """
    :return: what the command line says
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--game", default="coinrun")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--warmup-seconds", type=float, default=30.0)
    parser.add_argument("--n-envs", type=int, default=32)
    parser.add_argument("--n-runners", type=int, default=2)
    return parser.parse_args()


class ProcgenGame(gym.Env):
    """
    :param game: its name
    :param is_channels_first: whether to show pictures as [3, 64, 64]
    :param is_float: whether to show them as numbers from 0 to 1; RLlib's networks take no bytes
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012
    render_mode = None

    def __init__(self, game: str, is_channels_first: bool = False, is_float: bool = False) -> None:
        self._axes, self._is_float = (2, 0, 1) if is_channels_first else (0, 1, 2), is_float
        shape = (3, 64, 64) if is_channels_first else (64, 64, 3)
        self.observation_space = spaces.Box(0, 1, shape, np.float32) if is_float else spaces.Box(0, 255, shape, np.uint8)
        self.action_space = spaces.Discrete(15)
        self._batch = ProcgenGym3Env(1, game, distribution_mode="easy", num_threads=0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        # After an episode's end Procgen shows the next level already.
        return self._read(self._batch.observe()[1]), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._batch.act(np.array([action], dtype=np.int32).reshape(1))
        rewards, obs, is_first = self._batch.observe()
        return self._read(obs), float(rewards[0]), bool(is_first[0]), False, {}

    def _read(self, obs: Any) -> np.ndarray:
        picture = obs["rgb"][0].transpose(self._axes)
        return picture / np.float32(255) if self._is_float else picture
