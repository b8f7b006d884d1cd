"""Procgen's sixteen games as gymnasium environments and as one SB3 VecEnv. Importing this registers their ids, no more."""

from sb3_hrl_plugins.procgen.env_ids import GAMES

__all__ = ["GAMES"]
