"""A worker that is killed leaves no trial RUNNING for ever: the next worker runs it again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest
import sqlalchemy
from optuna.trial import TrialState

from sb3_hrl.zoo.tuning import HeartbeatStorage, create_study_with_heartbeat
from tests.zoo.conftest import run_zoo

pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:Heartbeat of storage is supposed"),  # these tests ask for a trial themselves
]

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
    time.sleep(5.5)  # four heartbeats and a little: from now on it counts as dead

    run_zoo("train", "-n", "600", "--n-trials", "1", *TRAIN, cwd=tmp_path, **HEARTBEAT)
    trials = _trials(tmp_path)
    assert [trial.state for trial in trials] == [TrialState.FAIL, TrialState.COMPLETE]
    assert trials[1].params == killed.params
    assert trials[1].system_attrs["failed_trial"] == 0


def test_a_trial_is_retried_three_times_and_no_more(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    states = []
    for _ in range(6):
        study = _die_in_a_trial(url)
        states.append([trial.state.name for trial in study.trials])
    assert states[-1] == ["FAIL"] * 4 + ["FAIL", "RUNNING"]
    histories = [trial.system_attrs.get("retry_history", []) for trial in study.trials]
    assert histories == [[], [0], [0, 1], [0, 1, 2], [], [4]]


def _die_in_a_trial(url: str) -> optuna.Study:
    """Begin a trial, as a worker would, and be gone; then let its last heartbeat lie an hour back."""
    study = create_study_with_heartbeat(storage=url, study_name="s", load_if_exists=True)
    study.ask({"x": optuna.distributions.FloatDistribution(0, 1)})
    storage = HeartbeatStorage(url, 1)
    with storage.engine.begin() as connection:
        connection.execute(sqlalchemy.text("UPDATE trial_heartbeats SET heartbeat = datetime('now', '-1 hour')"))
    return study


def test_workers_agree_on_the_interval(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker with a shorter interval must not take another one's live trial for dead."""
    url = f"sqlite:///{tmp_path / 'study.db'}"
    create_study_with_heartbeat(storage=url, study_name="s")
    monkeypatch.setenv("SB3_HRL_HEARTBEAT_SECONDS", "1")
    study = create_study_with_heartbeat(storage=url, study_name="s", load_if_exists=True)
    assert study._storage.get_heartbeat_interval() == 30  # type: ignore[attr-defined]
    monkeypatch.setenv("SB3_HRL_HEARTBEAT_SECONDS", "soon")
    with pytest.raises(RuntimeError, match="SB3_HRL_HEARTBEAT_SECONDS: expected a whole number of seconds >= 1, got 'soon'"):
        create_study_with_heartbeat(storage=url, study_name="s", load_if_exists=True)


def test_a_trial_of_a_worker_without_heartbeat_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    optuna.create_study(storage=url, study_name="s").ask()
    study = create_study_with_heartbeat(storage=url, study_name="s", load_if_exists=True)
    assert [trial.state for trial in study.trials] == [TrialState.RUNNING]


def test_a_trial_reports_from_its_first_moment(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'study.db'}"
    study = create_study_with_heartbeat(storage=url, study_name="s")
    study.enqueue_trial({"x": 0.5})
    study.ask(), study.ask()
    with HeartbeatStorage(url, 1).engine.begin() as connection:
        assert connection.execute(sqlalchemy.text("SELECT count(*) FROM trial_heartbeats")).scalar() == 2
