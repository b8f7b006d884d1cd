"""All that a training run needs to go on, taken between two iterations and kept in memory until somebody wants a file."""

import copy
import io
import random
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch as th
import yaml
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    EvalCallback,
    EventCallback,
    EveryNTimesteps,
    StopTrainingOnMaxEpisodes,
    StopTrainingOnNoModelImprovement,
)
from stable_baselines3.common.save_util import recursive_getattr, save_to_zip_file

from sb3_hrl.checkpoint import tree
from sb3_hrl.checkpoint.archive import METADATA, Archive, seal, write
from sb3_hrl.checkpoint.env_state import (
    begins_anew,
    get_env_state,
    get_normalization,
    get_random,
    is_stranger,
    set_env_state,
    set_random,
)

# The members that SB3 does not have; it ignores them.
STRUCTURE, ARRAYS = "state.json", "state.bin"
RESUMABLE, INFERENCE = "resumable", "inference"
# What changes in SB3's callbacks; another callback may have `get_checkpoint` and `set_checkpoint`.
_CALLBACK_ATTRIBUTES: dict[type[BaseCallback], tuple[str, ...]] = {
    EvalCallback: (
        "best_mean_reward",
        "last_mean_reward",
        "evaluations_results",
        "evaluations_timesteps",
        "evaluations_length",
        "evaluations_successes",
    ),
    EveryNTimesteps: ("last_time_trigger",),
    StopTrainingOnMaxEpisodes: ("n_episodes",),
    StopTrainingOnNoModelImprovement: ("last_best_mean_reward", "no_improvement_evals"),
}
# What every callback has.
_COMMON_ATTRIBUTES = {"model", "n_calls", "num_timesteps", "verbose", "locals", "globals", "parent"}


class Snapshot(NamedTuple):
    """
    A model between two iterations. Nothing in it changes when the model goes on.

    :param num_timesteps: the model's
    :param data: its attributes
    :param params: its state dicts
    :param variables: its other tensors
    :param normalization: the statistics of its ``VecNormalize``, if it has one
    :param resume: plain data that only training needs: random numbers, environments, callbacks; None for inference
    """

    num_timesteps: int
    data: dict[str, Any]
    params: dict[str, Any]
    variables: dict[str, Any]
    normalization: dict[str, Any] | None
    resume: dict[str, Any] | None

    @property
    def kind(self) -> str:
        """``resumable`` or ``inference``."""
        return INFERENCE if self.resume is None else RESUMABLE

    def to_zip(self, metadata: dict[str, Any]) -> bytes:
        """
        :param metadata: what ``metadata.yaml`` is to say
        :return: the file's content
        """
        buffer = io.BytesIO()
        save_to_zip_file(buffer, data=self.data, params=self.params, pytorch_variables=self.variables)
        structure, arrays = tree.pack({"normalization": self.normalization, "resume": self.resume})
        extra = {METADATA: _to_yaml(metadata), STRUCTURE: structure, ARRAYS: arrays}
        return seal(buffer.getvalue(), extra)

    def write(self, path: Path, metadata: dict[str, Any]) -> None:
        """
        Write the file, and what it says about itself beside it.

        :param path: where to
        :param metadata: what ``metadata.yaml`` is to say
        """
        write(path, self.to_zip(metadata))
        write(metadata_path(path), _to_yaml(metadata))


def metadata_path(path: Path) -> Path:
    """
    :param path: of a checkpoint
    :return: of what it says about itself
    """
    return path.with_name(f"{path.name.removesuffix('.zip')}.{METADATA}")


def _to_yaml(metadata: dict[str, Any]) -> bytes:
    return yaml.safe_dump(metadata, sort_keys=False).encode()


def take(
    model: BaseAlgorithm, callback: BaseCallback | None = None, *, is_resumable: bool = True, has_begun: bool = False
) -> Snapshot:
    """
    :param model: between two iterations; for inference at any time
    :param callback: the root of its callbacks, whose counters go on
    :param is_resumable: whether training is to go on from it
    :param has_begun: whether the next rollout has just begun, as it has for a callback
    :return: a copy of all that counts
    """
    state_dicts, variables = model._get_torch_save_params()
    excluded = {*model._excluded_save_params(), *(name.partition(".")[0] for name in (*state_dicts, *variables))}
    params: Any = model.get_parameters()
    if not is_resumable:
        params = _without_training(params)
    return Snapshot(
        model.num_timesteps,
        {name: _shallow_copy(value) for name, value in vars(model).items() if name not in excluded},
        _copied(params),
        {name: _copied(recursive_getattr(model, name)) for name in variables},
        None if (normalize := model.get_vec_normalize_env()) is None else get_normalization(normalize),
        _get_rest(model, callback, has_begun) if is_resumable else None,
    )


def _shallow_copy(value: Any) -> Any:
    return copy.copy(value) if isinstance(value, dict | list | deque | np.ndarray) else value


def _copied(value: Any) -> Any:
    """A copy of a state dict that shares no tensor with it."""
    if isinstance(value, th.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return type(value)((key, _copied(item)) for key, item in value.items())
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value


def _without_training(value: Any) -> Any:
    """The state dicts without what only training needs: the optimisers' moments, and the muscle learner's reservoir."""
    if not isinstance(value, dict):
        return value
    if value.keys() == {"state", "param_groups"}:
        return {**value, "state": {}}
    empty = {key: item[:0] for key, item in value.items() if key == "reservoir"}
    return {**{key: _without_training(item) for key, item in value.items()}, **empty, **({"n_seen": 0} if empty else {})}


# --- what SB3's zip does not have -------------------------------------------------------------------------------------


def _get_rest(model: BaseAlgorithm, callback: BaseCallback | None, has_begun: bool) -> dict[str, Any]:
    assert model.env is not None
    return {
        "version": 1,
        "random": _get_random_numbers(),
        "action_space": get_random(model.action_space),
        "last_obs": _as_plain(model._last_obs),
        "last_episode_starts": np.copy(model._last_episode_starts),  # type: ignore[arg-type]
        "last_original_obs": _as_plain(model._last_original_obs),
        "exploration": _get_exploration(model) if has_begun else None,
        "envs": get_env_state(model.env),
        "callbacks": [_get_callback(item) for item in _walk(callback)],
    }


def missing_parts(rest: dict[str, Any]) -> list[str]:
    """
    :param rest: of a snapshot
    :return: the names of what will restart
    """
    return [*rest["envs"]["missing"], *(state["missing"] for state in rest["callbacks"] if "missing" in state)]


def read_state(archive: Archive) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """
    :param archive: a checkpoint
    :return: the statistics of a ``VecNormalize``, and what ``restore`` wants; None for what it does not have
    """
    if STRUCTURE not in archive.members:
        return None, None
    state = tree.unpack(archive.members[STRUCTURE], archive.members[ARRAYS])
    return state["normalization"], state["resume"]


def restore(model: BaseAlgorithm, rest: dict[str, Any], callback: BaseCallback) -> list[str]:
    """
    Put everything but the model's own attributes where it was. Called when a rollout begins: what was drawn or counted since
    the model was loaded is forgotten.

    :param model: loaded from the same checkpoint, on environments that have been reset
    :param rest: of the checkpoint
    :param callback: the root of the callbacks
    :return: the names of what restarts
    """
    assert model.env is not None
    missing = set_env_state(model.env, rest["envs"])
    if not begins_anew(missing):
        model._last_obs = rest["last_obs"]
        model._last_episode_starts = rest["last_episode_starts"]
        model._last_original_obs = rest["last_original_obs"]
    missing += _set_callbacks(list(_walk(callback)), rest["callbacks"])
    set_random(model.action_space, rest["action_space"])
    _set_random_numbers(rest["random"])
    if model.use_sde:
        _set_exploration(model, rest["exploration"])
    return missing


def _as_plain(obs: Any) -> Any:
    if isinstance(obs, dict):
        return {key: np.copy(value) for key, value in obs.items()}
    return None if obs is None else np.copy(obs)


def _get_random_numbers() -> dict[str, Any]:
    state = {"python": random.getstate(), "numpy": np.random.get_state(legacy=False), "torch": th.get_rng_state().numpy()}
    if th.cuda.is_available():
        state["cuda"] = [part.numpy() for part in th.cuda.get_rng_state_all()]
    return state


def _set_random_numbers(state: dict[str, Any]) -> None:
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    th.set_rng_state(th.from_numpy(state["torch"]))
    if "cuda" in state and th.cuda.device_count() == len(state["cuda"]):
        th.cuda.set_rng_state_all([th.from_numpy(part) for part in state["cuda"]])


def _get_exploration(model: BaseAlgorithm) -> dict[str, np.ndarray] | None:
    """The matrices of gSDE, which are drawn at the beginning of a rollout before anybody can look."""
    if not model.use_sde:
        return None
    distribution: Any = model.policy.action_dist
    return {name: getattr(distribution, name).detach().cpu().numpy() for name in ("exploration_mat", "exploration_matrices")}


def _set_exploration(model: BaseAlgorithm, matrices: dict[str, np.ndarray] | None) -> None:
    assert model.env is not None
    if matrices is None:  # then they were not drawn yet
        model.policy.reset_noise(model.env.num_envs)  # type: ignore[operator]
    for name, matrix in (matrices or {}).items():
        setattr(model.policy.action_dist, name, th.as_tensor(matrix, device=model.device))


# --- callbacks --------------------------------------------------------------------------------------------------------


def _walk(callback: BaseCallback | None) -> Iterator[BaseCallback]:
    """The callbacks that somebody wants, in their order; those that only hold others have no state."""
    if callback is None:
        return
    if isinstance(callback, CallbackList):
        for child in callback.callbacks:
            yield from _walk(child)
        return
    if not getattr(callback, "is_internal", False):
        yield callback
    if isinstance(callback, EventCallback):
        yield from _walk(callback.callback)
        yield from _walk(getattr(callback, "callback_on_new_best", None))


def _get_callback(callback: BaseCallback) -> dict[str, Any]:
    state: dict[str, Any] = {"class": type(callback).__name__, "n_calls": callback.n_calls}
    state["num_timesteps"] = callback.num_timesteps
    for kind, names in _CALLBACK_ATTRIBUTES.items():
        if isinstance(callback, kind):
            state["attributes"] = {name: _numbers(getattr(callback, name)) for name in names}
    if isinstance(callback, EvalCallback) and callback.last_mean_reward > -np.inf:  # else they have not begun
        state["envs"] = get_env_state(callback.eval_env)
    if hasattr(callback, "get_checkpoint"):
        state["own"] = copy.deepcopy(callback.get_checkpoint())
    elif is_stranger(callback) and vars(callback).keys() - _COMMON_ATTRIBUTES:
        state["missing"] = f"the attributes of {type(callback).__name__}, which has no get_checkpoint"
    return state


def _numbers(value: Any) -> Any:
    return [_numbers(item) for item in value] if isinstance(value, list | tuple) else value


def _set_callbacks(callbacks: list[BaseCallback], states: list[dict[str, Any]]) -> list[str]:
    """Each callback continues the first one of its class that no other has continued. Returns the names of what restarts."""
    left, missing = list(states), []
    for callback in callbacks:
        index = next((at for at, state in enumerate(left) if state["class"] == type(callback).__name__), None)
        if index is None:
            continue
        state = left.pop(index)
        callback.n_calls, callback.num_timesteps = state["n_calls"], state["num_timesteps"]
        for name, value in state.get("attributes", {}).items():
            setattr(callback, name, value)
        if "own" in state and hasattr(callback, "set_checkpoint"):
            callback.set_checkpoint(state["own"])
        if "envs" in state and isinstance(callback, EvalCallback):
            callback.eval_env.reset()  # a Monitor refuses to step without
            missing += [f"of the evaluation {name}" for name in set_env_state(callback.eval_env, state["envs"])]
        if "missing" in state:
            missing.append(state["missing"])
    return missing
