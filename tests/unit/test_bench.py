"""``sb3-hrl bench``: it measures what it says, and writes it down. (Timings themselves are nobody's test.)"""

import json
from pathlib import Path

import pytest

from sb3_hrl.experiments.cli import main

SMALL = ["bench", "rollout", "--env", "Hopper-v5", "--n-envs", "2", "--n-steps", "8", "--net-arch", "8"]


def test_rollout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.json"
    names = ["sb3_dummy", "native_step", "native_rollout", "physics"]
    assert main([*SMALL, "--total-timesteps", "40", "--only", *names, "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert list(report["sps"]) == names
    assert all(rate > 0 for rate in report["sps"].values())
    assert report["settings"]["n_rounds"] == 3  # 40 steps in rollouts of 16
    assert all(len(seconds) == 3 for seconds in report["seconds"].values())
    assert report["machine"]["versions"]["mujoco"] == "4.0.0"
    output = capsys.readouterr().out
    assert "native_step" in output
    assert "1.00" in output


def test_an_unknown_contestant_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main([*SMALL, "--only", "sb3_dumy"])
    assert error.value.code == 2
    assert "no contestant is named 'sb3_dumy'; there are sb3_dummy," in capsys.readouterr().err
