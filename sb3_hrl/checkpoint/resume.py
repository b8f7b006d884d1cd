"""From a file back to a model that trains on."""

import importlib
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import gymnasium as gym
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.vec_env import VecEnv, VecNormalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvWrapper

from sb3_hrl.checkpoint import archive
from sb3_hrl.checkpoint.env_state import set_normalization
from sb3_hrl.checkpoint.metadata import MADE_OF_ENVS
from sb3_hrl.checkpoint.resumable import Resumable, resumable
from sb3_hrl.checkpoint.safe_pickle import is_known, is_trusted, load_data
from sb3_hrl.checkpoint.snapshot import read_state
from sb3_hrl.registry import register_envs


def find(path: str | Path) -> Path:
    """
    :param path: a checkpoint, or a run's folder, from which half a file that a killed process left is removed
    :return: the checkpoint; of a folder its newest whole one
    :raises FileNotFoundError: if there is none
    """
    path = Path(path)
    if not path.is_dir():
        return path if path.is_file() else Path(f"{path}.zip") if Path(f"{path}.zip").is_file() else _missing(path)
    archive.remove_torn(path)
    found = archive.newest(path)
    if found is None:
        raise FileNotFoundError(
            f"{path}: the folder has no whole resumable checkpoint (*.zip): train with --save-freq for some"
        )
    return found


def _missing(path: Path) -> NoReturn:
    raise FileNotFoundError(f"{path}: there is no such checkpoint or run folder")


def read_metadata(path: str | Path) -> dict[str, Any]:
    """
    :param path: a checkpoint
    :return: what it says about itself; empty for a file of SB3's own
    """
    return archive.read(path).metadata


def check(path: str | Path, trust: bool | None = None) -> dict[str, Any]:
    """
    Read all of a file that could be refused.

    :param path: a checkpoint
    :param trust: whether it may run code
    :return: what it says about itself
    :raises CheckpointError: if it is damaged
    :raises UntrustedError: if loading it would run code
    """
    found = archive.read(path)
    load_data(found.members["data"].decode(), trust=is_trusted(trust), name=found.path)
    return found.metadata


def load(path: str | Path, env: GymEnv | None = None, trust: bool | None = None, **kwargs: Any) -> Resumable:
    """
    Load a model of whatever algorithm wrote the file; training goes on exactly, with SB3's PPO and A2C too.

    :param path: a checkpoint, or a run's folder
    :param env: the environments to go on with
    :param trust: whether the file may run code
    :param kwargs: of ``load``
    :return: the model; ``learn(..., reset_num_timesteps=False)`` goes on
    """
    path = find(path)
    metadata = read_metadata(path)
    if not metadata:
        raise ValueError(f"{path}: it does not say which algorithm wrote it; use that algorithm's own load")
    algorithm = _import(metadata["algorithm"], trust)
    return resumable(algorithm).load(path, env=env, trust=trust, **kwargs)


def resume(path: str | Path, trust: bool | None = None, **kwargs: Any) -> Resumable:
    """
    Load a model and build its environments again::

        model = sb3_hrl.resume("logs/hppo/Hopper-v5_1")
        model.learn(1_000_000 - model.num_timesteps, reset_num_timesteps=False)

    :param path: a checkpoint, or a run's folder, which stands for its newest whole checkpoint
    :param trust: whether the file may run code, and name any class
    :param kwargs: of ``load``
    :return: the model with its environments
    """
    path = find(path)
    metadata = read_metadata(path)
    if metadata.get("kind") != "resumable":
        raise ValueError(f"{path}: it is for inference only; training goes on from a resumable checkpoint")
    return load(path, _build_envs(path, metadata["environments"], trust), trust, **kwargs)


def read_normalization(path: str | Path, normalize: VecNormalize) -> bool:
    """
    Give a ``VecNormalize`` the statistics that belong to a checkpoint.

    :param path: the checkpoint
    :param normalize: gets them
    :return: whether there are any in it; a file of SB3's own has none
    """
    normalization, _ = read_state(archive.read(path))
    if normalization is not None:
        set_normalization(normalize, normalization)
    return normalization is not None


def _build_envs(path: Path, description: dict[str, Any], trust: bool | None) -> VecEnv:
    register_envs()
    kind = _import(description["class"], trust)
    spec = description.get("spec")
    if "recipe" in description:
        env: VecEnv = kind(**description["recipe"])
    elif kind.__name__ in MADE_OF_ENVS and spec is not None and ":" not in spec["id"]:
        wrappers = [(_import(wrapper["entry_point"], trust), wrapper["kwargs"]) for wrapper in spec["wrappers"]]
        unknown = [wrapper.__name__ for wrapper, wrapper_kwargs in wrappers if wrapper_kwargs is None]
        if unknown:
            raise ValueError(f"{path}: it does not say how its {unknown[0]} was made; load(path, env=...) takes environments")

        def wrap(single: gym.Env) -> gym.Env:
            for wrapper, wrapper_kwargs in wrappers:
                single = wrapper(single, **wrapper_kwargs)
            return single

        if "vec_env_wrapper" in description:
            kind = partial(kind, vec_env_wrapper=_import(description["vec_env_wrapper"], trust))
        make_kwargs = {**spec["kwargs"], "max_episode_steps": spec["max_episode_steps"]}
        env = make_vec_env(
            spec["id"],
            description["n_envs"],
            env_kwargs=make_kwargs,
            wrapper_class=wrap if wrappers else None,
            vec_env_cls=kind,
        )
    else:
        raise ValueError(f"{path}: its environments cannot be built from what it says; load(path, env=...) takes them")
    for wrapper in description["wrappers"]:
        wrapper_kind = _import(wrapper["class"], trust)
        assert issubclass(wrapper_kind, VecEnvWrapper)
        env = wrapper_kind(env, **wrapper["kwargs"])
    return env


def _import(name: str, trust: bool | None) -> Any:
    """A class by ``module:Class``; a stranger's file can name only those of known packages."""
    module, _, attribute = name.partition(":")
    if not (is_known(module) or is_trusted(trust)):
        raise ValueError(f"the checkpoint names {name}, of a package that is not known; if you trust it: trust=True")
    return getattr(importlib.import_module(module), attribute)
