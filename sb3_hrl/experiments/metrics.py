"""What a run leaves behind for evaluation and comparison: ``metrics.jsonl``, ``training_summary.json``, ``config.yaml``."""

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, filter_excluded_keys
from stable_baselines3.common.vec_env import SubprocVecEnv, VecEnvWrapper

from sb3_hrl.experiments.machine import describe_machine, memory_bytes, own_peak_bytes

METRICS = "metrics.jsonl"
SUMMARY = "training_summary.json"
CONFIG = "config.yaml"

# The first and the last so many episodes say how a training began and how it ended.
REWARD_WINDOW = 100
# The speed at the end is that of the last tenth of the time.
FINAL_SHARE = 0.1
_MEMORY_SECONDS = 1.0


class Metric(NamedTuple):
    """
    One logging step.

    :param step: environment steps so far
    :param seconds: training time so far
    :param values: what was logged, by SB3's keys
    """

    step: int
    seconds: float
    values: Mapping[str, Any]


def read_metrics(file: Path) -> tuple[list[Metric], int]:
    """
    Read what a run has logged; a run that was killed may have left half a line.

    :param file: a ``metrics.jsonl``
    :return: the logging steps, and how many lines could not be read
    """
    metrics, n_broken = [], 0
    for line in file.read_bytes().split(b"\n") if file.is_file() else ():
        if not line:
            continue
        try:
            values = json.loads(line)
            metrics.append(Metric(int(values.pop("step")), float(values.pop("seconds")), values))
        except (ValueError, KeyError, TypeError, AttributeError):
            n_broken += 1
    return metrics, n_broken


def write_atomically(file: Path, text: str) -> None:
    """
    :param file: what is replaced, as a whole or not at all
    :param text: its new content
    """
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(text)
    os.replace(draft, file)


class MetricsWriter(KVWriter):
    """
    An output of SB3's logger: one line of JSON for each logging step, whole on the disk before the next one is written.

    :param file: where; what a run that goes on has logged beyond ``step`` is taken out
    :param step: environment steps that have been trained when this run begins or goes on
    :param clock: training time so far, in seconds
    :param after: called after each line
    """

    def __init__(self, file: Path, step: int, clock: Callable[[], float], after: Callable[[], None]) -> None:
        kept = [metric for metric in read_metrics(file)[0] if metric.step <= step] if step > 0 else []
        self.marks = [(metric.step, metric.seconds) for metric in kept]
        write_atomically(file, "".join(_to_line(metric) for metric in kept))
        self._file = file.open("a")
        self._clock, self._after = clock, after

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0) -> None:
        values = filter_excluded_keys(key_values, key_excluded, "json")
        metric = Metric(step, round(self._clock(), 3), {key: _to_plain(value) for key, value in sorted(values.items())})
        self._file.write(_to_line(metric))
        self._file.flush()
        self.marks.append((metric.step, metric.seconds))
        self._after()

    def close(self) -> None:
        self._file.close()


def _to_line(metric: Metric) -> str:
    return json.dumps({"step": metric.step, "seconds": metric.seconds, **metric.values}) + "\n"


def _to_plain(value: Any) -> Any:
    """
    :param value: anything
    :return: what JSON and plain YAML can say of it; a number that is none (NaN) becomes null
    """
    if isinstance(value, Mapping):
        return {str(key): _to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    if hasattr(value, "item") and getattr(value, "size", 1) in (1, None):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """
    :param folder: a run's
    :param config: how it was set up; readable without trust in whoever wrote it, unlike the zoo's own files
    """
    write_atomically(folder / CONFIG, yaml.safe_dump(_to_plain(config), sort_keys=False))


class RunRecorder(BaseCallback):
    """
    Keeps the time of a training and writes down how it goes. ``metrics.jsonl`` grows and ``training_summary.json`` is renewed
    at each logging step, so that a run which is killed has both.

    The model carries what must outlive it: ``training_seconds``, and ``training_record`` with the rest. A checkpoint that
    keeps a model's attributes thereby keeps them, and a training that goes on (``num_timesteps > 0``) goes on counting.

    :param folder: the run's
    :param settings: what the summary begins with: algorithm, environment, seed, planned duration
    :param duration_seconds: how long the training is to last, or None if steps decide
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], duration_seconds: float | None = None) -> None:
        super().__init__()
        self.folder, self.settings, self.duration_seconds = folder, settings, duration_seconds
        self.n_updates = self.n_episodes = 0
        self.best_reward: float | None = None
        self.first_rewards: list[float] = []
        self.last_rewards: list[float] = []
        self.peak_memory = 0
        self._began: float | None = None
        self._next_memory = 0.0
        self._machine: dict[str, Any] = {}
        self._marks: Sequence[tuple[int, float]] = ()

    @property
    def training_seconds(self) -> float:
        """Training time so far, with that of the runs which this one continues."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def _init_callback(self) -> None:
        # Here the model has its logger, and has not yet begun.
        model: Any = self.model
        is_going_on = model.num_timesteps > 0
        before = getattr(model, "training_seconds", 0.0) if is_going_on else 0.0
        for name, value in (getattr(model, "training_record", {}) if is_going_on else {}).items():
            setattr(self, name, list(value) if isinstance(value, list) else value)
        self._began = time.monotonic() - before
        self._machine = describe_machine(getattr(model, "n_threads_wanted", None))
        writer = MetricsWriter(self.folder / METRICS, model.num_timesteps, lambda: self.training_seconds, self._renew_summary)
        self._marks = writer.marks
        self.logger.output_formats.append(writer)
        self._keep()
        # Before the first line of metrics: a run that is killed at any moment after it says that it is unfinished.
        self._renew_summary()

    def _keep(self) -> None:
        model: Any = self.model
        model.training_seconds = self.training_seconds
        model.training_record = {
            "n_updates": self.n_updates,
            "n_episodes": self.n_episodes,
            "best_reward": self.best_reward,
            "first_rewards": list(self.first_rewards),
            "last_rewards": list(self.last_rewards),
            "peak_memory": self.peak_memory,
        }

    def _on_rollout_start(self) -> None:
        self._keep()

    def _on_step(self) -> bool:
        infos = self.locals.get("infos")
        # Only where an episode ended: native rollouts build the other infos when they are looked at.
        for index in np.flatnonzero(self.locals.get("dones", ())).tolist():
            episode = infos[index].get("episode") if infos is not None else None
            if episode is not None:
                self._count_episode(float(episode["r"]))
        return True

    def _count_episode(self, reward: float) -> None:
        self.n_episodes += 1
        self.best_reward = reward if self.best_reward is None else max(self.best_reward, reward)
        if len(self.first_rewards) < REWARD_WINDOW:
            self.first_rewards.append(reward)
        self.last_rewards.append(reward)
        del self.last_rewards[:-REWARD_WINDOW]

    def _on_rollout_end(self) -> None:
        self.n_updates += 1
        self._measure_memory()

    def _on_training_end(self) -> None:
        self._keep()

    def _measure_memory(self) -> None:
        if time.monotonic() >= self._next_memory:
            self._next_memory = time.monotonic() + _MEMORY_SECONDS
            self.peak_memory = max(self.peak_memory, memory_bytes(), own_peak_bytes())

    def summary(self, status: str) -> dict[str, Any]:
        """
        :param status: ``running``, ``finished``, ``stopped early`` or ``failed``
        :return: what ``training_summary.json`` says
        """
        model, seconds = self.model, self.training_seconds
        n_workers = count_workers(model)
        steps = model.num_timesteps
        planned = self.duration_seconds
        average = steps / seconds if seconds > 0 else None
        return {
            **self.settings,
            "algorithm": type(model).__name__,
            "mode": "parallel" if n_workers > 1 or getattr(model, "n_actors", None) else "sequential",
            "status": status,
            "duration_hours": seconds / 3600,
            "planned_hours": None if planned is None else planned / 3600,
            "overshoot_seconds": None if planned is None else max(0.0, seconds - planned),
            "total_timesteps": steps,
            "total_updates": self.n_updates,
            "avg_fps": average,
            "final_fps": final_fps(self._marks) or average,
            "peak_memory_gb": self.peak_memory / 1e9,
            **_mean_and_std("initial_reward", self.first_rewards),
            **_mean_and_std("final_reward", self.last_rewards),
            "best_reward": self.best_reward,
            "num_episodes": self.n_episodes,
            "num_workers": n_workers,
            "num_envs": model.n_envs,
            "date": self._machine["date"],
            "machine": {key: value for key, value in self._machine.items() if key != "date"},
        }

    def _renew_summary(self) -> None:
        self.write_summary("running")

    def write_summary(self, status: str) -> dict[str, Any]:
        """
        :param status: see ``summary``
        :return: what was written
        """
        summary = self.summary(status)
        write_atomically(self.folder / SUMMARY, json.dumps(_to_plain(summary), indent=1) + "\n")
        return summary

    def finish(self, has_failed: bool) -> dict[str, Any]:
        """
        Write the last summary and stop the clock.

        :param has_failed: whether an error ended the training
        :return: what was written; empty if the training never began
        """
        if self._began is None:
            return {}
        is_time_up = self.duration_seconds is not None and self.training_seconds >= self.duration_seconds
        is_done = is_time_up or self.model.num_timesteps >= self.model._total_timesteps
        summary = self.write_summary("failed" if has_failed else "finished" if is_done else "stopped early")
        for output in self.logger.output_formats:
            if isinstance(output, MetricsWriter):
                output.close()
        return summary


def final_fps(marks: Sequence[tuple[int, float]]) -> float | None:
    """
    :param marks: steps and seconds at each logging step
    :return: steps per second in the last tenth of the logged time, or in all of it if nothing was logged before that
    """
    if not marks:
        return None
    steps, seconds = marks[-1]
    before = [mark for mark in marks if mark[1] <= (1 - FINAL_SHARE) * seconds]
    first_steps, first_seconds = before[-1] if before else (0, 0.0)
    return (steps - first_steps) / (seconds - first_seconds) if seconds > first_seconds else None


def count_workers(model: BaseAlgorithm) -> int:
    """
    :param model: a model with its environments
    :return: how many processes or native threads step them
    """
    if getattr(model, "n_actors", None):
        return int(model.n_actors)  # type: ignore[attr-defined]
    venv = model.env
    while isinstance(venv, VecEnvWrapper):
        venv = venv.venv
    return venv.num_envs if isinstance(venv, SubprocVecEnv) else int(getattr(venv, "n_threads", 1))


def _mean_and_std(name: str, rewards: Sequence[float]) -> dict[str, float | None]:
    mean, std = (float(np.mean(rewards)), float(np.std(rewards))) if rewards else (None, None)
    return {name: mean, f"{name}_std": std}
