"""The zoo's experiment manager, for plug-in algorithms."""

import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rl_zoo3.exp_manager import ALGOS, ExperimentManager
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv

from sb3_hrl.actors import ActorVecEnv
from sb3_hrl.errors import MissingExtraError, PluginError
from sb3_hrl.extras import check_extra
from sb3_hrl.registry import get_spec
from sb3_hrl.vec_env.recipe import monitor_folder
from sb3_hrl.zoo.hook import LazyAlgorithms
from sb3_hrl.zoo.samplers import MUSCLE_KWARGS
from sb3_hrl.zoo.tuning import heartbeat_studies
from sb3_hrl.zoo.validation import (
    HYPERPARAMS,
    ConfigError,
    check_config,
    check_env_kwargs,
    find_config,
    normalise,
    read_section,
)

if TYPE_CHECKING:
    import optuna


class PluginExperimentManager(ExperimentManager):
    """
    Takes the place of ``ExperimentManager`` in every zoo command. For stock algorithms it is the zoo's own, unchanged; for
    plug-ins it finds their YAML, checks it before anything is created, lets ``env_kwargs`` and ``eval_env_kwargs`` of the
    YAML reach evaluation, takes no stray statistics into a new run, accepts trial 0, and gives a study a heartbeat. The same
    goes for a stock algorithm on an environment for which ``sb3_hrl/hyperparams`` has an entry of its own, without ``-conf``.
    """

    @wraps(ExperimentManager.__init__)  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        given = inspect.signature(ExperimentManager).bind(*args, **kwargs).arguments
        with _clear_errors():
            check_extra(self.env_name.gym_id)
            hyperparams = self._find_hyperparams(given.get("config"))
            self.is_plugin = hyperparams is not None
            if hyperparams is None:
                return
            ALGOS[self.algo]
            if given.get("config") is None:
                self.config = str(hyperparams)
            else:
                self.config = find_config(self.config, hyperparams.parent / "presets")
        if not self.continue_training:
            # Statistics are looked for beside the trained agent. Without one that is the working directory; look into the
            # new run's own folder instead, where there are none.
            self.trained_agent = os.path.join(self.save_path, "")

    def _find_hyperparams(self, config: str | None) -> Path | None:
        """
        :param config: what the user gave
        :return: the file of a plug-in, or ours for a stock algorithm on this environment; None if there is neither
        """
        assert isinstance(ALGOS, LazyAlgorithms)
        if self.algo in ALGOS.plugin_names:
            return get_spec(self.algo).hyperparams_path
        ours = HYPERPARAMS / f"{self.algo}.yml"
        if config is not None or not ours.is_file():
            return None
        return ours if self.env_name.gym_id in yaml.safe_load(ours.read_text(encoding="utf-8")) else None

    def read_hyperparameters(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if not self.is_plugin:
            return super().read_hyperparameters()
        if self.storage and self.study_name and self.trial_id == 0:
            # The zoo takes the trial number 0 for none at all.
            print("Loading from Optuna study...")
            trial = self.load_trial(self.storage, self.study_name, self.trial_id)
            self.custom_hyperparams = {**trial, **(self.custom_hyperparams or {})}
        algorithm = ALGOS[self.algo]
        with _clear_errors():
            check_config(
                self.config, self.env_name.gym_id, algorithm, is_atari=self._is_atari, overrides=self.custom_hyperparams
            )
        hyperparams, saved_hyperparams = super().read_hyperparameters()
        with _clear_errors():
            for key, given in (("env_kwargs", self.env_kwargs), ("eval_env_kwargs", self._eval_env_kwargs_args)):
                check_env_kwargs(self.env_name.gym_id, key, hyperparams.get(key) or given)
        section = read_section(self.config, self.env_name.gym_id, self._is_atari)
        if MUSCLE_KWARGS in section and hyperparams[MUSCLE_KWARGS] != section[MUSCLE_KWARGS]:
            # A trial, or the command line, says some of them; the file says the others.
            merged = {**section[MUSCLE_KWARGS], **hyperparams[MUSCLE_KWARGS]}
            hyperparams[MUSCLE_KWARGS] = saved_hyperparams[MUSCLE_KWARGS] = merged
        if self._eval_env_kwargs_args is not None:
            # So that enjoy and record_video find it, as they find the YAML's.
            saved_hyperparams["eval_env_kwargs"] = self._eval_env_kwargs_args
        return self._tidy(hyperparams, algorithm), self._tidy(saved_hyperparams, algorithm)

    def load_trial(self, storage: str, study_name: str, trial_id: int | None = None, convert: bool = True) -> dict[str, Any]:
        try:
            return super().load_trial(storage, study_name, trial_id, convert)
        except (KeyError, IndexError) as error:
            if not self.is_plugin:
                raise
            with _clear_errors():
                raise ConfigError(f"error: {storage} has no study {study_name!r} with a trial {trial_id}") from error

    @staticmethod
    def _tidy(hyperparams: dict[str, Any], algorithm: type) -> dict[str, Any]:
        """Numbers are numbers; a key that says null says nothing."""
        items = normalise(hyperparams, algorithm).items()
        empty = ("env_kwargs", "eval_env_kwargs")
        return type(hyperparams)((key, value) for key, value in items if value is not None or key not in empty)

    def _preprocess_hyperparams(
        self, hyperparams: dict[str, Any]
    ) -> tuple[dict[str, Any], Callable | None, list[BaseCallback], Callable | None]:
        if not self.is_plugin:
            return super()._preprocess_hyperparams(hyperparams)
        eval_env_kwargs = hyperparams.pop("eval_env_kwargs", None)
        hyperparams, env_wrapper, callbacks, vec_env_wrapper = super()._preprocess_hyperparams(hyperparams)
        if self._eval_env_kwargs_args is None:
            self.eval_env_kwargs = self.env_kwargs if eval_env_kwargs is None else eval_env_kwargs
        if hyperparams.get("n_actors"):
            # The environments are built where they run. Those for evaluation are of the same class, as SB3 wants it.
            self.vec_env_class = partial(ActorVecEnv, vec_env_wrapper=vec_env_wrapper)  # type: ignore[assignment]
            vec_env_wrapper = None
        return hyperparams, env_wrapper, callbacks, vec_env_wrapper

    def create_envs(self, n_envs: int, eval_env: bool = False, no_log: bool = False) -> VecEnv:
        # For `vec_env_wrapper: native`, of any algorithm: the folder that the zoo itself chooses.
        with monitor_folder(None if eval_env or no_log else self.save_path):
            return super().create_envs(n_envs, eval_env, no_log)

    def objective(self, trial: "optuna.Trial") -> float:
        if self.is_plugin and MUSCLE_KWARGS in self._hyperparams:
            trial.set_user_attr(MUSCLE_KWARGS, self._hyperparams[MUSCLE_KWARGS])
        return super().objective(trial)

    def hyperparameters_optimization(self) -> None:
        if not self.is_plugin:
            return super().hyperparameters_optimization()
        with heartbeat_studies():
            super().hyperparameters_optimization()


@contextmanager
def _clear_errors() -> Iterator[None]:
    """What is the user's or a plug-in's to mend ends the command with its message, and no traceback."""
    try:
        yield
    except (ConfigError, MissingExtraError, PluginError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
