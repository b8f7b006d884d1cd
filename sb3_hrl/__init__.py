"""Hierarchical control for Stable-Baselines3 and rl-zoo3."""

from importlib.metadata import version
from typing import Any

__version__ = version("sb3-hrl")


def resume(path: Any, trust: bool | None = None, **kwargs: Any) -> Any:
    """
    Load a model from a checkpoint or a run's folder, with its environments: see ``sb3_hrl.checkpoint.resume``.

    :param path: a checkpoint, or a run's folder
    :param trust: whether the file may run code
    :param kwargs: of ``load``
    :return: the model; ``learn(..., reset_num_timesteps=False)`` goes on
    """
    from sb3_hrl.checkpoint import resume as resume_checkpoint  # not at the top: the command line starts without torch

    return resume_checkpoint(path, trust, **kwargs)
