"""What all tests share."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch as th

from sb3_hrl import registry
from sb3_hrl.errors import MissingExtraError
from sb3_hrl.extras import check_extra

# The networks here are tiny and the tests run side by side: more threads would only wait for each other.
th.set_num_threads(1)
# The same for every process that a test starts; rendering and plotting must not look for a screen.
os.environ |= {"OMP_NUM_THREADS": "1", "MUJOCO_GL": "egl", "MPLBACKEND": "Agg"}
# A shell starts what goes to the background (`make test &`) deaf to Ctrl-C, and so would be what a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def missing(what: str, remedy: str) -> None:
    """
    Leave the test out because the machine lacks something, and say what. On CI, which has it all, that is a failure.

    :param what: what is missing
    :param remedy: how to get it
    """
    message = f"{what} is missing on this machine: {remedy}"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)


def require_env(env_id: str) -> None:
    """
    Leave the test out if the environment belongs to an extra that is not installed.

    :param env_id: any environment's id
    """
    try:
        check_extra(env_id)
    except MissingExtraError as error:
        missing(f"what {env_id} needs", str(error))


@pytest.fixture(scope="session")
def opengl() -> None:
    """OpenGL without a screen, for the tests that render."""
    code = "import gymnasium as gym; env = gym.make('Hopper-v5', render_mode='rgb_array'); env.reset(); env.render()"
    if subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode != 0:
        missing("OpenGL (EGL)", "install it (Debian, Ubuntu: apt-get install libegl1 libgl1 libegl-mesa0)")


@pytest.fixture
def announce(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Make a distribution with entry points appear installed: ``announce("stranger", "[sb3_hrl.wrappers]\\nx = m:X")``."""

    def announce_distribution(name: str, entry_points: str) -> None:
        info = tmp_path / "dists" / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entry_points)
        monkeypatch.syspath_prepend(str(tmp_path / "dists"))
        registry.plugins.cache_clear()

    yield announce_distribution
    monkeypatch.undo()
    registry.plugins.cache_clear()
