"""Hierarchical PPO."""

from sb3_hrl.hppo.hppo import HPPO
from sb3_hrl.hppo.policies import CnnPolicy, MlpPolicy, MultiInputPolicy

__all__ = ["HPPO", "CnnPolicy", "MlpPolicy", "MultiInputPolicy"]
