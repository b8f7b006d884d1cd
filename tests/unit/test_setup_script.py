"""What ``make`` says on a machine that lacks something: one sentence, and nothing is created."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts/setup.sh"


def _refusal(venv: Path, **env: str) -> str:
    process = subprocess.run(
        ["sh", str(SCRIPT)], capture_output=True, text=True, check=False, env={**os.environ, "VENV": str(venv), **env}
    )
    assert process.returncode == 1
    assert process.stdout == ""
    assert not venv.exists()
    (line,) = process.stderr.splitlines()
    return line


def _fake_python(folder: Path, fails_on: str) -> str:
    """
    :param folder: where it goes
    :param fails_on: a word; code with that word fails, all other code succeeds
    :return: the path of something that behaves like a Python which lacks one thing
    """
    python = folder / "python"
    python.write_text(f'#!/bin/sh\ncase "$*" in *{fails_on}*) exit 1;; *--version) echo "Python 3.13.0";; esac\n')
    python.chmod(0o755)
    return str(python)


@pytest.mark.parametrize(
    ("fails_on", "sentence"),
    [
        (
            "version_info",
            r"Python 3.11 or 3.12 is needed and Python 3.13.0 was found; .* make venv PYTHON=/path/to/python3.12",
        ),
        ("ensurepip", r"has no venv module; .* apt-get install python3-venv"),
        ("Python.h", r"the headers of .* are missing; .* apt-get install python3-dev"),
    ],
)
def test_what_python_lacks(tmp_path: Path, fails_on: str, sentence: str) -> None:
    line = _refusal(tmp_path / "venv", PYTHON=_fake_python(tmp_path, fails_on))
    for part in sentence.split(" .* "):
        assert part in line


def test_no_python_at_all(tmp_path: Path) -> None:
    line = _refusal(tmp_path / "venv", PYTHON=str(tmp_path / "nowhere"))
    assert f"Python 3.11 or 3.12 is needed and no {tmp_path}/nowhere was found" in line


def test_no_compiler(tmp_path: Path) -> None:
    line = _refusal(tmp_path / "venv", CXX="/bin/false", PYTHON=_fake_python(tmp_path, "nothing-at-all"))
    assert "a C++17 compiler is needed" in line
    assert "apt-get install g++" in line
