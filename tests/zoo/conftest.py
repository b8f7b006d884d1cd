"""The zoo's commands, in real processes."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from sb3_hrl.checkpoint import archive
from sb3_hrl.checkpoint.snapshot import read_state
from sb3_hrl.checkpoint.tree import pack

Zoo = Callable[..., subprocess.CompletedProcess[str]]

# A whole training run of hppo in a second or two, start-up aside.
SMALL = ["-params", "n_steps:32", "batch_size:32", "n_epochs:1", "n_envs:2"]


def run_zoo(command: str, *args: str, cwd: Path, returncode: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
    """
    Run ``python -m rl_zoo3.<command>`` as a user would.

    :param command: ``train``, ``enjoy``, ...
    :param args: its arguments
    :param cwd: the working directory
    :param returncode: what it must return
    :param env: additions to the environment
    :return: the finished process
    """
    line = [sys.executable, "-m", f"rl_zoo3.{command}", *args]
    process = subprocess.run(line, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, **env})
    assert process.returncode == returncode, f"{process.returncode}\n{process.stdout}\n{process.stderr}"
    return process


def assert_same_end(left: Path, right: Path, has_same_callbacks: bool = True) -> None:
    """
    :param left: a run's last checkpoint
    :param right: of another run, which has come to the same end
    :param has_same_callbacks: whether these are compared, too
    """
    first, second = archive.read(left), archive.read(right)
    for name in ("policy.pth", "policy.optimizer.pth"):
        assert first.members[name] == second.members[name], name
    states = [read_state(found) for found in (first, second)]
    for _, resume in states:
        assert resume is not None
        if not has_same_callbacks:
            del resume["callbacks"]
    assert pack(states[0]) == pack(states[1])


def read_video(file: Path) -> np.ndarray:
    """
    :param file: a video
    :return: its frames [T, height, width, 3]
    """
    # Not imageio.imread, which leaves its pipes to the garbage collector, and so a warning to whichever test comes next.
    line = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", str(file), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    process = subprocess.run(line, capture_output=True, check=True)
    match = re.search(r"Video: .*?, (\d+)x(\d+)", process.stderr.decode())
    assert match is not None
    width, height = map(int, match.groups())
    return np.frombuffer(process.stdout, np.uint8).reshape(-1, height, width, 3)


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with one finished run: logs/hppo/Hopper-v5_1, with checkpoints, evaluations and a best model."""
    cwd = tmp_path_factory.mktemp("trained")
    options = ["--save-freq", "128", "--eval-freq", "128", "--eval-episodes", "2", "-P", "-tb", "tb", "--seed", "3"]
    process = run_zoo("train", "--algo", "hppo", "--env", "Hopper-v5", "-n", "256", *options, *SMALL, cwd=cwd)
    assert "256/256" in process.stdout  # the progress bar
    assert "hppo.yml" in process.stdout  # its own default YAML
    return cwd
