"""
A heartbeat for the studies of ``-optimize``.

Optuna cannot see that a worker was killed: its trial stays RUNNING for ever. In a database each running trial can report a
heartbeat; whoever starts a worker next fails the trials that have stopped reporting, and queues them again.
"""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import TrialState

DEFAULT_HEARTBEAT_SECONDS = 60
MAX_RETRIES = 3


def heartbeat_seconds() -> int:
    """
    :return: how often a running trial reports, from ``SB3_HRL_HEARTBEAT_SECONDS`` (default 60); a trial that has not reported
        for twice as long is taken for dead
    """
    text = os.environ.get("SB3_HRL_HEARTBEAT_SECONDS", str(DEFAULT_HEARTBEAT_SECONDS))
    if not text.isdigit() or int(text) < 1:
        raise ValueError(f"SB3_HRL_HEARTBEAT_SECONDS: expected a whole number of seconds >= 1, got {text!r}")
    return int(text)


@contextmanager
def heartbeat_studies() -> Iterator[None]:
    """
    While it lasts, a study over a database URL is created with a heartbeat, and its dead trials are queued again.

    The zoo names its storage by a string and calls ``optuna.create_study`` itself, hence the replacement of that name.
    """
    create_study = optuna.create_study

    def create_study_with_heartbeat(*, storage: Any = None, **kwargs: Any) -> optuna.Study:
        if not isinstance(storage, str):
            return create_study(storage=storage, **kwargs)
        seconds = heartbeat_seconds()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            database = RDBStorage(
                storage,
                heartbeat_interval=seconds,
                grace_period=2 * seconds,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(max_retry=MAX_RETRIES),
            )
            study = create_study(storage=database, **kwargs)
            fail_stale_trials(study)
        # A worker that died before its trial's first heartbeat left nothing that could go stale: report once in its place.
        # For a trial that is alive this changes nothing.
        for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
            if trial.datetime_start is not None and datetime.now() - trial.datetime_start > timedelta(seconds=2 * seconds):
                database.record_heartbeat(trial._trial_id)
        return study

    optuna.create_study = create_study_with_heartbeat
    try:
        yield
    finally:
        optuna.create_study = create_study
