"""An algorithm, its search space and a wrapper."""

from typing import Any

import gymnasium as gym
from stable_baselines3 import A2C

from sb3_hrl.registry import AlgorithmSpec

SPEC = AlgorithmSpec(
    name="stranger_a2c",
    algorithm="stranger_rl.plugin:StrangerA2C",
    hyperparams="stranger_rl:stranger_a2c.yml",
    sampler="stranger_rl.plugin:sample",
    converter="stranger_rl.plugin:convert",
)


class StrangerA2C(A2C):
    """A2C under another name."""


class DoubleReward(gym.RewardWrapper):
    """Twice the reward."""

    def reward(self, reward: Any) -> float:
        return 2 * float(reward)


def sample(trial: Any, n_actions: int, n_envs: int, additional_args: dict[str, Any]) -> dict[str, Any]:
    """One parameter."""
    return convert({"one_minus_gamma": trial.suggest_float("one_minus_gamma", 0.001, 0.1)})


def convert(params: dict[str, Any]) -> dict[str, Any]:
    """Its inverse."""
    return {"gamma": 1 - params["one_minus_gamma"]}
