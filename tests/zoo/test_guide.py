"""Every block of docs/guide.md works, in its order, in one folder."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sb3_hrl.experiments.cli import main

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", (ROOT / "docs/guide.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("guide"))
    yield Path.cwd()
    os.chdir(before)


def _run(line: str) -> None:
    words = shlex.split(line)
    if words[0] == "sb3-hrl":
        # The reader trains for half a minute, the test for a second.
        assert main(["1s" if word == "30s" else word for word in words[1:]]) == 0, line
    elif words[0] == "make":
        subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, check=True, capture_output=True)
    elif words[:2] == ["pip", "install"]:
        assert words[2:] == ["-e", ".[plots]", "--no-build-isolation"]
        import rliable  # noqa: F401 (what that brings)
    else:
        assert words == ["source", ".venv/bin/activate"]


def test_the_guide(folder: Path) -> None:
    assert [language for language, _ in BLOCKS] == ["bash", "bash", "bash", "python", "bash", "bash"]
    for language, block in BLOCKS:
        if language == "python":
            subprocess.run([sys.executable, "-W", "ignore", "-c", block], cwd=folder, check=True)
        else:
            for line in block.splitlines():
                _run(line)
    assert (folder / "comparison/comparison.html").is_file()
    report = (folder / "comparison/comparison_report.txt").read_text()
    assert re.search(r"^Seeds +2 +1$", report, re.MULTILINE)
    assert re.search(r"^Evaluation Reward +[\d.]+ \[.*\] +[\d.]+", report, re.MULTILINE)


@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("train-timed", "train --env procgen-coinrun-v0 -f logs --algo hppo --duration 1.0"),
        ("train-parallel", "train --env procgen-coinrun-v0 -f logs --algo hppo --duration 1.0 -params n_actors:4"),
        ("train-impala", "train --env procgen-coinrun-v0 -f logs --algo impala"),
        ("train-impala-parallel", "train --env procgen-coinrun-v0 -f logs --algo impala -params n_actors:4"),
        ("evaluate", "evaluate -f logs --n-episodes 100 --deterministic"),
        ("evaluate-ppo", "evaluate -f logs --n-episodes 100 --deterministic --algo hppo"),
        ("evaluate-impala", "evaluate -f logs --n-episodes 100 --deterministic --algo impala"),
        ("compare", "compare -f logs"),
        ("doctor", "doctor"),
    ],
)
def test_make_targets(target: str, command: str) -> None:
    process = subprocess.run(
        ["make", "-n", "--no-print-directory", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert shlex.split(process.stdout.splitlines()[-1]) == [".venv/bin/sb3-hrl", *command.split()]
    text = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert target in text
