"""Hierarchical control for Stable-Baselines3 and rl-zoo3."""

from importlib.metadata import version

__version__ = version("sb3-hrl")
