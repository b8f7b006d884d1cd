"""The zoo's experiment manager, for plug-in algorithms."""

import inspect
import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from rl_zoo3.exp_manager import ALGOS, ExperimentManager
from stable_baselines3.common.callbacks import BaseCallback

from sb3_hrl.registry import get_spec
from sb3_hrl.zoo.hook import LazyAlgorithms
from sb3_hrl.zoo.tuning import heartbeat_studies
from sb3_hrl.zoo.validation import ConfigError, check_config, normalise


class PluginExperimentManager(ExperimentManager):
    """
    Takes the place of ``ExperimentManager`` in every zoo command. For stock algorithms it is the zoo's own, unchanged; for
    plug-ins it finds their YAML, checks it before anything is created, lets ``env_kwargs`` and ``eval_env_kwargs`` of the
    YAML reach evaluation, takes no stray statistics into a new run, accepts trial 0, and gives a study a heartbeat.
    """

    @wraps(ExperimentManager.__init__)  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        assert isinstance(ALGOS, LazyAlgorithms)
        self.is_plugin = self.algo in ALGOS.plugin_names
        if not self.is_plugin:
            return
        given = inspect.signature(ExperimentManager).bind(*args, **kwargs).arguments
        if given.get("config") is None:
            self.config = str(get_spec(self.algo).hyperparams_path)
        if not self.continue_training:
            # Statistics are looked for beside the trained agent. Without one that is the working directory; look into the
            # new run's own folder instead, where there are none.
            self.trained_agent = os.path.join(self.save_path, "")

    def read_hyperparameters(self) -> tuple[dict[str, Any], dict[str, Any]]:
        if not self.is_plugin:
            return super().read_hyperparameters()
        if self.storage and self.study_name and self.trial_id == 0:
            # The zoo takes the trial number 0 for none at all.
            print("Loading from Optuna study...")
            trial = self.load_trial(self.storage, self.study_name, self.trial_id)
            self.custom_hyperparams = {**trial, **(self.custom_hyperparams or {})}
        algorithm = ALGOS[self.algo]
        try:
            check_config(
                self.config, self.env_name.gym_id, algorithm, is_atari=self._is_atari, overrides=self.custom_hyperparams
            )
        except ConfigError as error:
            print(error, file=sys.stderr)
            raise SystemExit(2) from None
        return tuple(self._tidy(hyperparams, algorithm) for hyperparams in super().read_hyperparameters())  # type: ignore[return-value]

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
        processed = super()._preprocess_hyperparams(hyperparams)
        if self._eval_env_kwargs_args is None:
            self.eval_env_kwargs = self.env_kwargs if eval_env_kwargs is None else eval_env_kwargs
        return processed

    def hyperparameters_optimization(self) -> None:
        if not self.is_plugin:
            return super().hyperparameters_optimization()
        with heartbeat_studies():
            super().hyperparameters_optimization()
