"""Procgen's sixteen games as gymnasium environments and as one SB3 VecEnv. Needs the extra ``[procgen]``."""
