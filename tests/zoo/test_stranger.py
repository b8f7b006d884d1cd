"""A stranger's distribution, installed by pip into an environment of its own, plugs in like a part of ours."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

STRANGER = Path(__file__).with_name("stranger")


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a throw-away environment with everything that this one has, and the stranger's distribution."""
    folder = tmp_path_factory.mktemp("stranger")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv/bin/python"
    site_packages = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], capture_output=True, text=True, check=True
    ).stdout.strip()
    # addsitedir, unlike a plain path, also runs the start-up files there: ours, and those of editable installs.
    parent = sysconfig.get_path("purelib")
    (Path(site_packages) / "parent.pth").write_text(f"import site; site.addsitedir({parent!r})\n")
    shutil.copytree(STRANGER, folder / "source")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-build-isolation", "--no-deps", str(folder / "source")], check=True)
    return python


def _run(python: Path, *args: str, cwd: Path) -> str:
    process = subprocess.run([python, *args], cwd=cwd, capture_output=True, text=True, check=False, env=os.environ)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def test_train_and_enjoy(python: Path, tmp_path: Path) -> None:
    stranger = ["--algo", "stranger_a2c", "--env", "StrangerCart-v0"]
    output = _run(python, "-m", "rl_zoo3.train", *stranger, "--eval-freq", "-1", cwd=tmp_path)
    assert "stranger_a2c.yml" in output
    run = tmp_path / "logs/stranger_a2c/StrangerCart-v0_1"
    assert (run / "StrangerCart-v0.zip").is_file()
    output = _run(python, "-m", "rl_zoo3.enjoy", *stranger, "-f", "logs", "--no-render", "-n", "120", cwd=tmp_path)
    # CartPole pays 1 for a step, the stranger's wrapper makes 2 of it.
    reward, length = (float(output.split(label)[1].split()[0]) for label in ("Mean reward:", "Mean episode length:"))
    assert reward == pytest.approx(2 * length, abs=0.03)  # both are printed with two digits


def test_it_is_listed_with_its_origin(python: Path, tmp_path: Path) -> None:
    output = _run(python, "-m", "sb3_hrl.experiments.cli", "plugins", cwd=tmp_path)
    for name in ("stranger_a2c", "stranger", "double_reward"):
        (line,) = [line for line in output.splitlines() if f" {name} " in line]
        assert "stranger-rl 3.2.1" in line
        assert " yes " in line
    assert " hppo " in output


def test_here_it_is_unknown(tmp_path: Path) -> None:
    """The counter-check: without the install there is no such algorithm."""
    line = [sys.executable, "-m", "rl_zoo3.train", "--algo", "stranger_a2c"]
    process = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert "invalid choice: 'stranger_a2c'" in process.stderr
