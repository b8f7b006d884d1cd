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


def test_train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "bench.json"
    command = ["bench", "train", *SMALL[2:], "--batch-size", "8", "--n-epochs", "1", "--rounds", "2", "--json", str(file)]
    assert main([*command, "--only", "sb3_dummy", "hppo"]) == 0
    report = json.loads(file.read_text())
    assert list(report["sps"]) == ["sb3_dummy", "hppo"]
    assert report["settings"]["batch_size"] == 8
    assert "against sb3_dummy" in capsys.readouterr().out


def test_num_envs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, plot = tmp_path / "bench.json", tmp_path / "scaling.png"
    command = ["bench", "num-envs", "--env", "Hopper-v5", "--n-steps", "8", "--net-arch", "8", "--n-epochs", "1"]
    sizes = ["--n-envs-list", "1", "3", "--total-timesteps", "30"]
    assert main([*command, *sizes, "--json", str(file), "--plot", str(plot)]) == 0
    rows = json.loads(file.read_text())["rows"]
    assert [(row["n_envs"], row["batch"]) for row in rows] == [(1, 8), (3, 24)]
    first, second = rows
    assert (first["speedup"], first["efficiency"]) == (1.0, 1.0)
    assert second["speedup"] == second["sps"] / first["sps"]
    assert second["efficiency"] == second["speedup"] / 3
    assert all(row[f"{part}_ms"] > 0 for row in rows for part in ("rollout", "handover", "learning"))
    assert plot.read_bytes().startswith(b"\x89PNG")
    best = max(rows, key=lambda row: row["sps"])
    chosen = rows[0] if rows[0]["sps"] >= 0.97 * best["sps"] else rows[1]
    assert f"Recommended for hppo: n_envs: {chosen['n_envs']} (" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize("what", ["rollout", "train", "num-envs"])
def test_a_file_that_cannot_be_written_is_said_before(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", what, "--json", str(tmp_path / "nowhere" / "bench.json")])
    assert f"--json: there is no folder {tmp_path / 'nowhere'}" in capsys.readouterr().err
