"""The zoo's experiment manager, for plug-in algorithms."""

import inspect
import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch as th
import yaml
from rl_zoo3.exp_manager import ALGOS, ExperimentManager
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.vec_env import VecEnv

from sb3_hrl.actors import ActorVecEnv
from sb3_hrl.checkpoint import Checkpointer, CheckpointError, Resumable, UntrustedError, check, compare_with
from sb3_hrl.checkpoint.archive import remove_torn
from sb3_hrl.errors import MissingExtraError, PluginError
from sb3_hrl.experiments.metrics import METRICS, RunRecorder, write_config
from sb3_hrl.extras import check_extra
from sb3_hrl.registry import get_spec
from sb3_hrl.vec_env.recipe import monitor_folder
from sb3_hrl.zoo.hook import LazyAlgorithms
from sb3_hrl.zoo.samplers import MUSCLE_KWARGS
from sb3_hrl.zoo.tuning import heartbeat_studies
from sb3_hrl.zoo.validation import (
    CHECKPOINT_KEYS,
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
    YAML reach evaluation, takes no stray statistics into a new run, accepts trial 0, gives a study a heartbeat, records how a
    run goes, and leaves checkpoints from which it goes on. The same but for the checkpoints goes for a stock algorithm on an
    environment for which ``sb3_hrl/hyperparams`` has an entry of its own, without ``-conf``.
    """

    # How long a training lasts, in seconds; None if steps decide.
    duration_seconds: float | None = None
    recorder: RunRecorder | None = None
    checkpointer: Checkpointer | None = None
    # What the checkpoint of ``-i`` says about itself; empty for a new run.
    resumed: Mapping[str, Any] = {}

    @wraps(ExperimentManager.__init__)  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        given = inspect.signature(ExperimentManager).bind(*args, **kwargs).arguments
        with clear_errors():
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
        self.is_resumable = issubclass(ALGOS[self.algo], Resumable)
        if self.continue_training and self.is_resumable:
            with clear_errors():
                self.resumed = self._read_checkpoint()
        if not self.continue_training:
            # Statistics are looked for beside the trained agent. Without one that is the working directory; look into the
            # new run's own folder instead, where there are none.
            self.trained_agent = os.path.join(self.save_path, "")

    def _read_checkpoint(self) -> Mapping[str, Any]:
        """What the checkpoint of ``-i`` says about itself; empty if training cannot go on from it exactly."""
        metadata = check(self.trained_agent)
        remove_torn(Path(self.trained_agent).parent)
        algorithm = ALGOS[self.algo]
        if metadata and metadata["algorithm"] != f"{algorithm.__module__}:{algorithm.__qualname__}":
            raise ConfigError(f"error: -i {self.trained_agent}: it is of {metadata['algorithm']}, not of --algo {self.algo}")
        if metadata.get("kind") == "resumable":
            return metadata
        print(f"{self.trained_agent} is no resumable checkpoint: a new run begins with its networks")
        return {}

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
        with clear_errors():
            check_config(
                self.config, self.env_name.gym_id, algorithm, is_atari=self._is_atari, overrides=self.custom_hyperparams
            )
        hyperparams, saved_hyperparams = super().read_hyperparameters()
        section = read_section(self.config, self.env_name.gym_id, self._is_atari)
        wanted = section.get("eval_env_kwargs")
        is_given = self._eval_env_kwargs_args is not None or "eval_env_kwargs" in (self.custom_hyperparams or {})
        if self.env_kwargs and wanted is not None and not is_given:
            eval_env_kwargs = follow_env_kwargs(self.env_kwargs, section.get("env_kwargs") or {}, wanted)
            hyperparams["eval_env_kwargs"] = saved_hyperparams["eval_env_kwargs"] = eval_env_kwargs
        with clear_errors():
            for key, given in (("env_kwargs", self.env_kwargs), ("eval_env_kwargs", self._eval_env_kwargs_args)):
                check_env_kwargs(self.env_name.gym_id, key, hyperparams.get(key) or given)
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
            with clear_errors():
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
        self.checkpoint_options = {key: hyperparams.pop(key) for key in CHECKPOINT_KEYS if key in hyperparams}
        hyperparams, env_wrapper, callbacks, vec_env_wrapper = super()._preprocess_hyperparams(hyperparams)
        n_done = self.resumed.get("num_timesteps", 0)
        if n_done >= self.n_timesteps:
            with clear_errors():
                raise ConfigError(
                    f"error: -i {self.trained_agent}: it has {n_done} steps already, so there is nothing left of "
                    f"{self.n_timesteps}: give a larger total with -n"
                )
        if self._eval_env_kwargs_args is None:
            self.eval_env_kwargs = self.env_kwargs if eval_env_kwargs is None else eval_env_kwargs
        if hyperparams.get("n_actors"):
            # The environments are built where they run. Those for evaluation are of the same class, as SB3 wants it.
            self.vec_env_class = partial(ActorVecEnv, vec_env_wrapper=vec_env_wrapper)  # type: ignore[assignment]
            vec_env_wrapper = None
        return hyperparams, env_wrapper, callbacks, vec_env_wrapper

    @property
    def is_recorded(self) -> bool:
        """Whether the run leaves metrics and a summary."""
        return self.is_plugin and not self.optimize_hyperparameters

    def _save_config(self, saved_hyperparams: dict[str, Any]) -> None:
        super()._save_config(saved_hyperparams)
        if self.is_recorded:
            write_config(Path(self.save_path), self._describe(saved_hyperparams))
        if self.resumed:
            parents = [{"path": self.trained_agent, "num_timesteps": self.resumed["num_timesteps"]}]
            text = yaml.safe_dump(parents + self.resumed["resumed_from"], sort_keys=False)
            Path(self.params_path, "resumed_from.yml").write_text(text)

    def _describe(self, saved_hyperparams: dict[str, Any]) -> dict[str, Any]:
        # Two runs have the same setting if all of this but the seed and the command is the same.
        hyperparams = {key: value for key, value in saved_hyperparams.items() if key not in ("n_timesteps", "n_envs")}
        timed = self.duration_seconds is not None
        return {
            "algo": self.algo,
            "env": self.env_name.gym_id,
            "seed": self.seed,
            "command": " ".join(sys.orig_argv),
            "arguments": sys.argv[1:],
            **({"duration_seconds": self.duration_seconds} if timed else {"n_timesteps": self.n_timesteps}),
            "n_envs": self.n_envs,
            "vec_env": getattr(self.vec_env_class, "func", self.vec_env_class).__name__,
            "env_kwargs": self.env_kwargs,
            "eval_env_kwargs": self.eval_env_kwargs,
            "torch_threads": th.get_num_threads(),
            "device": str(self.device),
            "hyperparams": {key: hyperparams[key] for key in hyperparams if key not in ("env_kwargs", "eval_env_kwargs")},
        }

    def create_envs(self, n_envs: int, eval_env: bool = False, no_log: bool = False) -> VecEnv:
        # For `vec_env_wrapper: native`, of any algorithm: the folder that the zoo itself chooses.
        with monitor_folder(None if eval_env or no_log else self.save_path):
            return super().create_envs(n_envs, eval_env, no_log)

    # --- checkpoints ----------------------------------------------------------------------------------------------------

    def create_callbacks(self) -> None:
        has_checkpoints = self.is_plugin and self.is_resumable and not self.optimize_hyperparameters
        save_freq = max(self.save_freq, 0)
        if has_checkpoints:
            self.save_freq = 0  # the zoo's callback would save in the middle of an iteration
        super().create_callbacks()
        if self.is_recorded:
            if self.resumed:
                self._copy_metrics()
            settings = {"env": self.env_name.gym_id, "seed": self.seed}
            self.recorder = RunRecorder(Path(self.save_path), settings, self.duration_seconds)
            self.callbacks.append(self.recorder)
        if has_checkpoints:
            self.checkpointer = Checkpointer(
                self.save_path,
                save_freq,
                keep_last=self.checkpoint_options.get("keep_checkpoints"),
                save_optimizer=self.checkpoint_options.get("save_optimizer", True),
                verbose=self.verbose,
            )

    def _copy_metrics(self) -> None:
        """The curve begins where the run did; the recorder cuts it where this one goes on."""
        earlier = Path(self.trained_agent).parent / METRICS
        if earlier.is_file():
            shutil.copy(earlier, self.save_path)

    def _maybe_normalize(self, env: VecEnv, eval_env: bool) -> VecEnv:
        if not self.resumed:
            return super()._maybe_normalize(env, eval_env)
        # The statistics are in the checkpoint; a file beside it may belong to another one.
        checkpoint, self.trained_agent = self.trained_agent, os.path.join(self.save_path, "")
        try:
            return super()._maybe_normalize(env, eval_env)
        finally:
            self.trained_agent = checkpoint

    def create_log_folder(self) -> None:
        if self.continue_training and self.is_plugin and self.is_resumable:
            with clear_errors(), self._naming_the_checkpoint(), redirect_stdout(io.StringIO()):  # what is said comes again
                env = self.create_envs(1, no_log=True)
                ALGOS[self.algo].load(self.trained_agent, env=env, device="cpu")
                env.close()
        super().create_log_folder()

    @contextmanager
    def _naming_the_checkpoint(self) -> Iterator[None]:
        """For what ``load`` refuses: other spaces, other muscles."""
        try:
            yield
        except ValueError as error:
            raise ConfigError(f"error: -i {self.trained_agent}: {error}") from error

    def _load_pretrained_agent(self, hyperparams: dict[str, Any], env: VecEnv) -> BaseAlgorithm:
        if not self.is_plugin:
            return super()._load_pretrained_agent(hyperparams, env)
        with clear_errors(), self._naming_the_checkpoint():
            model: Any = super()._load_pretrained_agent(hyperparams, env)
        if self.resumed:
            total = f" of {self.n_timesteps}" if self.duration_seconds is None else ""
            print(f"Continuing at step {model.num_timesteps}{total}")
            for difference in compare_with(model, self.resumed):
                print(f"  different: {difference}")
            model.continues_run = True
        return model

    def learn(self, model: BaseAlgorithm) -> None:
        has_failed = True
        try:
            self._learn(model)
            has_failed = False
        finally:
            if self.recorder is not None:
                self.recorder.finish(has_failed)

    def _learn(self, model: BaseAlgorithm) -> None:
        if self.checkpointer is None:
            super().learn(model)
            return
        normalize = model.get_vec_normalize_env()
        if normalize is not None:
            # enjoy wants this file, and gives its place to what the checkpoint holds.
            normalize.save(os.path.join(self.params_path, "vecnormalize.pkl"))
        # Not the first: that one is told of the end of the training even if there was an error.
        self.callbacks = [CallbackList(self.callbacks), self.checkpointer]
        with self.checkpointer.handling_signals():
            super().learn(model)

    def save_trained_model(self, model: BaseAlgorithm) -> None:
        super().save_trained_model(model)
        if self.checkpointer is not None:
            # After Ctrl-C the model is somewhere in an iteration; the checkpoint is of its beginning.
            self.checkpointer.save(Path(self.save_path, f"{self.env_name}.zip"))

    def objective(self, trial: "optuna.Trial") -> float:
        if self.is_plugin and MUSCLE_KWARGS in self._hyperparams:
            trial.set_user_attr(MUSCLE_KWARGS, self._hyperparams[MUSCLE_KWARGS])
        return super().objective(trial)

    def hyperparameters_optimization(self) -> None:
        if not self.is_plugin:
            return super().hyperparameters_optimization()
        with heartbeat_studies():
            super().hyperparameters_optimization()


def follow_env_kwargs(given: Mapping[str, Any], usual: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """
    What evaluation has otherwise than training stays so; all else follows the command line.

    :param given: ``env_kwargs`` of the command line, which replace the file's
    :param usual: ``env_kwargs`` of the file
    :param wanted: ``eval_env_kwargs`` of the file
    :return: ``eval_env_kwargs`` that go with those that were given
    """
    own = {key: value for key, value in wanted.items() if key not in usual or usual[key] != value}
    return {key: value for key, value in given.items() if key in wanted or key not in usual} | own


@contextmanager
def clear_errors() -> Iterator[None]:
    """What is the user's or a plug-in's to mend ends the command with its message, and no traceback."""
    try:
        yield
    except (CheckpointError, ConfigError, MissingExtraError, PluginError, UntrustedError) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
