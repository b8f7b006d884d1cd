"""
A heartbeat for the studies of ``-optimize``.

Optuna cannot see that a worker was killed: its trial stays RUNNING for ever. In a database each running trial can report a
heartbeat; whoever starts a worker next fails the trials that have stopped reporting, and queues them again.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, TrialState

DEFAULT_HEARTBEAT_SECONDS = 30
# So many reports may be missed (a locked database, a long call into native code) before a trial counts as dead.
GRACE_HEARTBEATS = 4
MAX_RETRIES = 3
SQLITE_TIMEOUT_SECONDS = 100

_STUDY_ATTRIBUTE = "heartbeat_seconds"
_create_study = optuna.create_study


def heartbeat_seconds() -> int:
    """
    :return: how often a running trial reports, from ``SB3_HRL_HEARTBEAT_SECONDS`` (default 30)
    """
    text = os.environ.get("SB3_HRL_HEARTBEAT_SECONDS", str(DEFAULT_HEARTBEAT_SECONDS))
    if not (text.isascii() and text.isdigit() and int(text) >= 1):
        raise RuntimeError(f"SB3_HRL_HEARTBEAT_SECONDS: expected a whole number of seconds >= 1, got {text!r}")
    return int(text)


class HeartbeatStorage(RDBStorage):
    """
    Optuna's database storage with two gaps closed: a trial reports from the moment it is RUNNING (Optuna's thread begins
    later, and a worker killed in between would never be missed), and a report that fails does not end that thread.

    :param url: the database
    :param seconds: how often a running trial reports
    """

    def __init__(self, url: str, seconds: int) -> None:
        engine_kwargs = {"connect_args": {"timeout": SQLITE_TIMEOUT_SECONDS}} if url.startswith("sqlite") else None
        retry = RetryHeartbeatStaleTrialCallback(max_retry=MAX_RETRIES)
        super().__init__(url, engine_kwargs, heartbeat_interval=seconds, heartbeat_stale_trial_callback=retry)
        self.set_interval(seconds)

    def set_interval(self, seconds: int) -> None:
        """
        :param seconds: how often a running trial reports
        """
        self.heartbeat_interval, self.grace_period = seconds, GRACE_HEARTBEATS * seconds

    def record_heartbeat(self, trial_id: int) -> None:
        try:
            super().record_heartbeat(trial_id)
        except StorageInternalError as error:
            warnings.warn(f"a heartbeat was left out: {error}", RuntimeWarning, stacklevel=2)

    def _create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> FrozenTrial:
        trial = super()._create_new_trial(study_id, template_trial)
        if trial.state == TrialState.RUNNING:
            self.record_heartbeat(trial._trial_id)
        return trial

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        is_set = super().set_trial_state_values(trial_id, state, values)
        if is_set and state == TrialState.RUNNING:
            self.record_heartbeat(trial_id)
        return is_set


@contextmanager
def heartbeat_studies() -> Iterator[None]:
    """
    While it lasts, a study over a database URL is created with a heartbeat, and its dead trials are queued again.

    The zoo names its storage by a string and calls ``optuna.create_study`` itself, hence the replacement of that name.
    """
    optuna.create_study = create_study_with_heartbeat
    try:
        yield
    finally:
        optuna.create_study = _create_study


def create_study_with_heartbeat(*, storage: Any = None, **kwargs: Any) -> optuna.Study:
    """
    ``optuna.create_study``, with a heartbeat if the storage is a database URL.

    :param storage: a URL, or anything else that Optuna takes
    :param kwargs: the other arguments
    :return: the study
    """
    if not isinstance(storage, str):
        return _create_study(storage=storage, **kwargs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        database = HeartbeatStorage(storage, heartbeat_seconds())
        study = _create_study(storage=database, **kwargs)
        # Workers must agree on when a trial is dead: the first one decides for the study.
        if _STUDY_ATTRIBUTE not in study.user_attrs:
            study.set_user_attr(_STUDY_ATTRIBUTE, database.heartbeat_interval)
        database.set_interval(study.user_attrs[_STUDY_ATTRIBUTE])
        fail_stale_trials(study)
    return study
