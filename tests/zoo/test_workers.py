"""Two workers on one PostgreSQL study, one of them killed; the dashboard shows it."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState

from tests.conftest import missing
from tests.zoo.test_heartbeat import HEARTBEAT

PORT, DASHBOARD_PORT = 54329, 54380
URL = f"postgresql+psycopg://tuner@127.0.0.1:{PORT}/postgres"
TRAIN = ["--algo", "hppo", "--env", "Pendulum-v1", "-optimize", "--storage", URL, "--study-name", "s", "--no-optim-plots"]
TRAIN += ["--n-evaluations", "1", "--eval-episodes", "1", "-params", "n_envs:2"]


def _wait(is_done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 400
    while not is_done():
        assert time.monotonic() < deadline, what
        time.sleep(0.3)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    """A PostgreSQL server of the test's own. It refuses to run as root: then the package's own user runs it."""
    folders = [str(folder) for folder in Path("/usr/lib/postgresql").glob("*/bin")]
    search = os.pathsep.join([*folders, os.environ.get("PATH", "")])
    initdb, postgres = shutil.which("initdb", path=search), shutil.which("postgres", path=search)
    if initdb is None or postgres is None:
        missing("PostgreSQL", "install it (Debian: apt-get install postgresql)")
    user = "postgres" if os.getuid() == 0 else None
    data = Path(f"/tmp/sb3_hrl_postgres_{os.getpid()}")
    data.mkdir(mode=0o700)
    if user is not None:
        os.chown(data, pwd.getpwnam(user).pw_uid, -1)
    server = None
    try:
        line = [str(initdb), "-D", str(data), "-U", "tuner", "-A", "trust", "--no-sync"]
        subprocess.run(line, check=True, capture_output=True, user=user, cwd="/")
        line = [str(postgres), "-D", str(data), "-p", str(PORT), "-h", "127.0.0.1", "-k", str(data), "-F"]
        server = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=user, cwd="/")
        ready = [str(Path(str(postgres)).resolve().with_name("pg_isready")), "-h", "127.0.0.1", "-p", str(PORT)]
        _wait(lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0, "PostgreSQL does not start")
        yield URL
    finally:
        if server is not None:
            server.send_signal(signal.SIGINT)  # at once: open connections would hold it up
            server.wait()
        shutil.rmtree(data)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_two_workers_one_killed(database: str, tmp_path: Path) -> None:
    storage = optuna.storages.RDBStorage(database)

    def trials() -> list[optuna.trial.FrozenTrial]:
        try:
            return optuna.load_study(study_name="s", storage=storage).trials
        except KeyError:  # not there yet
            return []

    def start(n_timesteps: int, n_trials: int) -> subprocess.Popen[bytes]:
        line = [sys.executable, "-m", "rl_zoo3.train", "-n", str(n_timesteps), "--n-trials", str(n_trials), *TRAIN]
        return subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.DEVNULL, env={**os.environ, **HEARTBEAT})

    def running() -> list[optuna.trial.FrozenTrial]:
        return [trial for trial in trials() if trial.state == TrialState.RUNNING and len(trial.params) > 10]

    doomed, other, dashboard = start(100_000_000, 1), None, None
    try:
        _wait(lambda: bool(running()), "the first worker started no trial")
        other = start(600, 60)
        _wait(lambda: any(trial.state == TrialState.COMPLETE for trial in trials()), "the second worker finished no trial")
        doomed.send_signal(signal.SIGKILL)
        doomed.wait()
        # The second worker goes on, and takes over what the first one left.
        _wait(
            lambda: any("failed_trial" in trial.system_attrs and trial.state.is_finished() for trial in trials()),
            "nobody took over",
        )
        found = trials()
        (retried,) = [trial for trial in found if trial.system_attrs.get("failed_trial") == 0]
        assert found[0].state == TrialState.FAIL
        assert retried.params == found[0].params

        line = [str(Path(sys.executable).with_name("optuna-dashboard")), database, "--port", str(DASHBOARD_PORT)]
        dashboard = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        url = f"http://127.0.0.1:{DASHBOARD_PORT}/api/studies"
        _wait(lambda: _get(url) is not None, "the dashboard does not answer")
        assert '"study_name": "s"' in str(_get(url))
    finally:
        for process in (doomed, other, dashboard):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()
        storage.engine.dispose()


def _get(url: str) -> str | None:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return None
