"""``sb3-hrl quickstart``, which ``make train`` calls, and the commands that it recommends."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The working directory and the output of a short quickstart."""
    cwd = tmp_path_factory.mktemp("quickstart")
    line = [sys.executable, "-m", "sb3_hrl.experiments.cli", "quickstart", "--n-timesteps", "4096", "--n-episodes", "3"]
    process = subprocess.run(line, cwd=cwd, capture_output=True, text=True, check=True)
    return cwd, process.stdout


def test_it_shows_before_and_after(finished: tuple[Path, str]) -> None:
    cwd, output = finished
    assert "4,096/4,096" in output  # the progress bar
    rewards = [float(value) for value in re.findall(r"(?:before|after) training +(-?[\d.]+) \+/-", output)]
    assert len(rewards) == 2
    assert rewards[0] != rewards[1]
    (run,) = re.findall(r"^Run +(\S+)", output, re.MULTILINE)
    assert (cwd / run / "MuscleArmReach-v0.zip").is_file()
    (tensorboard_log,) = re.findall(r"tensorboard --logdir (\S+)", output)
    assert list((cwd / tensorboard_log).rglob("events.*"))


@pytest.mark.parametrize(("name", "options"), [("watch it", ["--no-render", "-n", "50"]), ("go on", [])])
def test_the_next_commands_work(finished: tuple[Path, str], name: str, options: list[str]) -> None:
    cwd, output = finished
    (command,) = re.findall(rf"^  {name} +python (.*)$", output, re.MULTILINE)
    subprocess.run([sys.executable, *shlex.split(command), *options], cwd=cwd, capture_output=True, check=True)
