"""A worker that is killed leaves no trial RUNNING for ever: the next worker runs it again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
from optuna.trial import TrialState

from tests.zoo.conftest import run_zoo

STUDY = ["--storage", "sqlite:///study.db", "--study-name", "s", "--no-optim-plots", "--n-evaluations", "1"]
TRAIN = ["--algo", "hppo", "--env", "Pendulum-v1", "-optimize", *STUDY, "--eval-episodes", "1", "-params", "n_envs:2"]
HEARTBEAT: dict[str, Any] = {"SB3_HRL_HEARTBEAT_SECONDS": "1"}


def _trials(folder: Path) -> list[optuna.trial.FrozenTrial]:
    try:
        return optuna.load_study(study_name="s", storage=f"sqlite:///{folder / 'study.db'}").trials
    except KeyError:  # the study is not there yet
        return []


def test_a_killed_trial_is_run_again(tmp_path: Path) -> None:
    # A trial that would last for hours, killed as soon as it runs.
    line = [sys.executable, "-m", "rl_zoo3.train", "-n", "100000000", "--n-trials", "1", *TRAIN]
    worker = subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.DEVNULL, env={**os.environ, **HEARTBEAT})
    try:
        deadline = time.monotonic() + 120
        while not any(trial.state == TrialState.RUNNING and len(trial.params) > 10 for trial in _trials(tmp_path)):
            assert worker.poll() is None, "the worker ended by itself"
            assert time.monotonic() < deadline, "the worker started no trial"
            time.sleep(0.5)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    (killed,) = _trials(tmp_path)
    assert killed.state == TrialState.RUNNING  # what plain Optuna would leave behind
    time.sleep(3)  # two heartbeats and a little: from now on it counts as dead

    run_zoo("train", "-n", "600", "--n-trials", "1", *TRAIN, cwd=tmp_path, **HEARTBEAT)
    trials = _trials(tmp_path)
    assert [trial.state for trial in trials] == [TrialState.FAIL, TrialState.COMPLETE]
    assert trials[1].params == killed.params
    assert trials[1].system_attrs["failed_trial"] == 0
