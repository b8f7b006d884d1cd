"""Algorithms that can be saved between two iterations and go on exactly."""

import io
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch as th
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.type_aliases import GymEnv, MaybeCallback
from stable_baselines3.common.utils import configure_logger
from stable_baselines3.common.vec_env import VecEnv

from sb3_hrl.checkpoint import archive, snapshot
from sb3_hrl.checkpoint.env_state import set_normalization
from sb3_hrl.checkpoint.metadata import describe, describe_envs
from sb3_hrl.checkpoint.safe_pickle import is_trusted, load_data

SelfResumable = TypeVar("SelfResumable", bound="Resumable")


class Resumable(OnPolicyAlgorithm):
    """
    A base for on-policy algorithms, before the algorithm itself: ``class HPPO(Resumable, PPO)``.

    ``save`` writes a resumable checkpoint where one can be had: between two calls of ``learn``, with the environments open.
    While ``learn`` runs it writes an inference file (as ``EvalCallback`` wants it); a ``Checkpointer`` takes checkpoints then.
    ``load`` reads files without running code from them, and notes what training needs to go on; ``learn`` with
    ``reset_num_timesteps=False`` puts that in place.
    """

    # What `learn` has to put in place, from the checkpoint that the model was loaded from.
    _rest: dict[str, Any] | None = None
    # The checkpoints that this model goes back to, the nearest first.
    lineage: tuple[dict[str, Any], ...] = ()
    # Whether the next `learn` continues the run of the checkpoint, and counts its steps from that run's beginning.
    continues_run = False
    # Whether the model is inside of an iteration: `learn` is running, or has not come to its end.
    _is_learning = False

    # --- saving ---------------------------------------------------------------------------------------------------------

    def save(
        self,
        path: str | Path | io.BufferedIOBase,
        exclude: Iterable[str] | None = None,
        include: Iterable[str] | None = None,
    ) -> None:
        if exclude or include:
            super().save(path, exclude, include)
            return
        env = self.env if is_open(self.env) else None
        is_resumable = not self._is_learning and self._last_obs is not None and env is not None
        taken = snapshot.take(self, is_resumable=is_resumable)
        metadata = describe(self, taken, None if env is None else describe_envs(env))
        if isinstance(path, str | Path):
            taken.write(Path(path) if Path(path).suffix else Path(f"{path}.zip"), metadata)
        else:
            path.write(taken.to_zip(metadata))

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_rest", "_is_learning", "continues_run"]

    # --- loading --------------------------------------------------------------------------------------------------------

    @classmethod
    def load(
        cls: type[SelfResumable],
        path: str | Path | io.BufferedIOBase,
        env: GymEnv | None = None,
        device: th.device | str = "auto",
        custom_objects: dict[str, Any] | None = None,
        print_system_info: bool = False,
        force_reset: bool = True,
        trust: bool | None = None,
        **kwargs: Any,
    ) -> SelfResumable:
        """
        SB3's ``load``, for files of strangers too: no code in them is run.

        :param path: a file, or an open one
        :param env: the environments to go on with
        :param device: where the networks go
        :param custom_objects: replacements for attributes, which are not read then
        :param print_system_info: print what the file says about its origin
        :param force_reset: let ``learn`` reset the environments first
        :param trust: unpickle whatever the file holds; by default what the variable ``SB3_HRL_TRUST`` says
        :param kwargs: attributes to change
        :return: the model
        """
        found = archive.read(path)
        replaced = dict(custom_objects or {})
        data = load_data(found.members["data"].decode(), replaced, trust=is_trusted(trust), name=found.path)
        model: Any = super().load(
            io.BytesIO(found.data), env, device, {**data, **replaced}, print_system_info, force_reset, **kwargs
        )
        if found.metadata:
            normalization, rest = snapshot.read_state(found)
            written = found.metadata["format"]
            if rest is not None and written != archive.FORMAT:
                warnings.warn(
                    f"{found.path}: it is in format {written}, but training goes on exactly from format {archive.FORMAT}: "
                    "the model is loaded, its environments and random numbers begin anew"
                )
                rest = None
            model._rest = rest
            normalize = model.get_vec_normalize_env()
            if normalization is not None and normalize is not None:
                set_normalization(normalize, normalization)
            model.lineage = (_parent(found), *(dict(item) for item in found.metadata["resumed_from"]))
        return model

    # --- going on -------------------------------------------------------------------------------------------------------

    def learn(
        self: SelfResumable,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1,
        tb_log_name: str = "",  # the algorithm's own
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfResumable:
        tb_log_name = tb_log_name or type(self).__name__
        if self.continues_run:
            self.continues_run, reset_num_timesteps = False, False
            total_timesteps -= self.num_timesteps
        self._is_learning = True
        super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)
        self._is_learning = False
        return self

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        tb_log_name: str = "run",
        progress_bar: bool = False,
    ) -> tuple[int, BaseCallback]:
        if reset_num_timesteps:
            self._rest = None  # somebody wants the networks, and a new beginning
        # SB3 would go on in the newest folder for TensorBoard, which may be another run's.
        is_own_logger = self._rest is not None and not self._custom_logger
        if is_own_logger:
            self.set_logger(configure_logger(self.verbose, self.tensorboard_log, tb_log_name, True))
        try:
            return super()._setup_learn(total_timesteps, callback, reset_num_timesteps, tb_log_name, progress_bar)
        finally:
            self._custom_logger = self._custom_logger and not is_own_logger

    def _init_callback(self, callback: MaybeCallback, progress_bar: bool = False) -> BaseCallback:
        if self._rest is None:
            return super()._init_callback(callback, progress_bar)
        if not isinstance(callback, list):
            callback = [callback if isinstance(callback, BaseCallback) else ConvertCallback(callback)]
        restoring = _Restore()
        restoring.root = super()._init_callback([restoring, *callback], progress_bar)
        return restoring.root


class _Restore(BaseCallback):
    """Puts everything in place when the first rollout begins, before the other callbacks see it."""

    is_internal = True
    root: BaseCallback

    def _on_rollout_start(self) -> None:
        model: Any = self.model
        if model._rest is None:
            return
        rest, model._rest = model._rest, None
        missing = snapshot.restore(model, rest, self.root)
        if missing:
            warnings.warn(f"training goes on, but not exactly; what restarts: {'; '.join(missing)}")

    def _on_step(self) -> bool:
        return True


def is_open(env: VecEnv | None) -> bool:
    """
    :param env: environments, perhaps closed
    :return: whether their state can be had
    """
    base: Any = env
    while hasattr(base, "venv"):
        base = base.venv
    return base is not None and not getattr(base, "is_closed", getattr(base, "closed", False))


def _parent(found: archive.Archive) -> dict[str, Any]:
    names = "num_timesteps", "time", "git"
    return {"path": found.path, **{name: found.metadata[name] for name in names}}


@cache
def resumable(algorithm: Any) -> Any:
    """
    :param algorithm: any on-policy algorithm, such as SB3's PPO or A2C
    :return: the same with ``Resumable`` before it
    """
    if issubclass(algorithm, Resumable):
        return algorithm
    names = {"__module__": algorithm.__module__, "__qualname__": algorithm.__qualname__, "__doc__": algorithm.__doc__}
    make: Callable[..., type] = type
    return make(algorithm.__name__, (Resumable, algorithm), names)
