"""What a checkpoint says about itself, for people and for the check when it is resumed."""

import datetime
import hashlib
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch as th
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecNormalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvWrapper

from sb3_hrl.checkpoint.archive import FORMAT
from sb3_hrl.checkpoint.snapshot import Snapshot, missing_parts, take

# VecEnvs that ``make_vec_env`` makes of single environments.
MADE_OF_ENVS = ("DummyVecEnv", "SubprocVecEnv", "ActorVecEnv")
_PACKAGES = ("torch", "mujoco", "stable-baselines3", "gymnasium", "numpy", "sb3-hrl")
# Attributes of an algorithm that are its state or its surroundings, not what somebody chose.
_NOT_CHOSEN = {
    "lineage",
    "training_seconds",
    "training_record",
    "num_timesteps",
    "start_time",
    "tensorboard_log",
    "verbose",
    "lr_schedule",
    "ep_info_buffer",
    "ep_success_buffer",
    "observation_space",
    "action_space",
    "policy_class",
    "muscle_body",
    "hold_decisions",
    "noise_seed",
    "n_noise_decisions",
    "n_simulated_steps",
}


class Difference(NamedTuple):
    """
    Between a checkpoint and what is to go on from it.

    :param name: of what
    :param saved: in the checkpoint
    :param now: here
    """

    name: str
    saved: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.name}: {self.saved} in the checkpoint, {self.now} now"


@cache
def versions() -> dict[str, str]:
    """
    :return: of Python and the packages that decide the numbers
    """
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


@cache
def git_revision() -> str | None:
    """
    :return: of the working directory, with a mark if it has changes; None outside of a repository
    """
    try:
        call = ["git", "describe", "--always", "--dirty", "--abbrev=40"]
        return subprocess.run(call, capture_output=True, text=True, check=True, timeout=5).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def describe(model: BaseAlgorithm, snapshot: Snapshot, environments: dict[str, Any] | None) -> dict[str, Any]:
    """
    :param model: the snapshot's
    :param snapshot: of which
    :param environments: what ``describe_envs`` says of the model's; None if they are closed, or if there are none
    :return: the content of ``metadata.yaml``
    """
    return {
        "format": FORMAT,
        "kind": snapshot.kind,
        "algorithm": _class_name(model),
        "num_timesteps": int(snapshot.num_timesteps),
        "n_updates": int(snapshot.data.get("_n_updates", 0)),
        "time": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "threads": getattr(model, "n_threads_wanted", None) or th.get_num_threads(),
        "command": " ".join(sys.orig_argv),
        "git": git_revision(),
        "environments": environments,
        "spaces": {"observation": str(model.observation_space), "action": str(model.action_space)},
        "hyperparameters": hyperparameters(snapshot.data),
        "missing": [] if snapshot.resume is None else missing_parts(snapshot.resume),
        "resumed_from": [dict(item) for item in getattr(model, "lineage", ())],
    }


def _class_name(value: Any) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"


def hyperparameters(data: dict[str, Any]) -> dict[str, Any]:
    """
    :param data: an algorithm's attributes
    :return: what somebody chose of them, as YAML can say it
    """
    names = sorted(name for name in data if not name.startswith("_") and name not in _NOT_CHOSEN)
    return {name: _as_yaml(data[name]) for name in names}


def _as_yaml(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _as_yaml(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_yaml(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))  # where it lies in memory is nobody's choice


# --- environments -----------------------------------------------------------------------------------------------------


def describe_envs(env: VecEnv) -> dict[str, Any]:
    """
    :param env: any
    :return: what they are made of, from the inside: ``resume`` can build most of them again
    """
    wrappers: list[dict[str, Any]] = []
    base = env
    while isinstance(base, VecEnvWrapper):
        wrappers.insert(0, {"class": _class_name(base), "kwargs": _wrapper_kwargs(base)})
        base = base.venv
    description: dict[str, Any] = {"class": _class_name(base), "n_envs": base.num_envs, "wrappers": wrappers}
    recipe = getattr(base, "recipe", None)
    if isinstance(recipe, Mapping):
        description["recipe"] = _as_yaml(recipe)
        description["model_sha256"] = getattr(getattr(base, "task", None), "model_hash", None)
    elif type(base).__name__ in MADE_OF_ENVS:
        spec = base.get_attr("spec", 0)[0]
        if spec is not None:
            description["spec"] = _describe_spec(spec)
        if isinstance(base, DummyVecEnv):
            description["model_sha256"] = _hash_model(getattr(base.envs[0].unwrapped, "fullpath", None))
        wrapper = getattr(recipe, "vec_env_wrapper", None)  # in every actor
        if wrapper is not None:
            description["vec_env_wrapper"] = f"{wrapper.__module__}:{getattr(wrapper, '__qualname__', '?')}"
    return description


def _describe_spec(spec: Any) -> dict[str, Any]:
    wrappers = [
        {"entry_point": wrapper.entry_point, "kwargs": _as_yaml(wrapper.kwargs)}
        for wrapper in spec.additional_wrappers
        if not wrapper.entry_point.endswith(":Monitor")
    ]
    kwargs = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
    limit = spec.max_episode_steps
    return {"id": spec.id, "kwargs": _as_yaml(kwargs), "max_episode_steps": limit, "wrappers": wrappers}


@cache
def _hash_model(path: str | None) -> str | None:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path is not None and Path(path).is_file() else None


def _wrapper_kwargs(wrapper: VecEnvWrapper) -> dict[str, Any]:
    if isinstance(wrapper, VecNormalize):
        names = ("training", "norm_obs", "norm_reward", "clip_obs", "clip_reward", "gamma", "epsilon", "norm_obs_keys")
        return {name: _as_yaml(getattr(wrapper, name)) for name in names}
    if isinstance(wrapper, VecFrameStack):
        return {"n_stack": wrapper.stacked_obs.n_stack}
    return {}


# --- differences ------------------------------------------------------------------------------------------------------


def compare_with(model: BaseAlgorithm, saved: Mapping[str, Any]) -> list[Difference]:
    """
    :param model: loaded from a checkpoint, perhaps with other arguments or environments
    :param saved: what the checkpoint says about itself
    :return: what is different now. Other spaces or other muscles never come here: ``load`` refuses them
    """
    assert model.env is not None
    now = describe(model, take(model, is_resumable=False), describe_envs(model.env))
    pairs = [(f"the version of {name}", value, now["versions"].get(name)) for name, value in saved["versions"].items()]
    pairs.append(("torch's threads", saved["threads"], now["threads"]))
    chosen, chosen_now = saved["hyperparameters"], now["hyperparameters"]
    pairs += [(name, chosen.get(name), chosen_now.get(name)) for name in sorted({*chosen, *chosen_now})]
    envs, envs_now = saved["environments"] or {}, now["environments"] or {}
    pairs += [(f"the environments' {name}", envs.get(name), envs_now.get(name)) for name in sorted({*envs, *envs_now})]
    return [Difference(*pair) for pair in pairs if pair[1] != pair[2]]
