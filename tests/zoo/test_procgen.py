"""Procgen in the zoo: train, evaluate on unseen levels, look at the result; and the zoo's own algorithms with our entries."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sb3_hrl.experiments.cli import main
from sb3_hrl.zoo.manager import follow_env_kwargs
from tests.zoo.conftest import read_video, run_zoo

COINRUN, FRUITBOT = (["--env", f"procgen-{game}-v0", "--seed", "0"] for game in ("coinrun", "fruitbot"))
SMALL = ["-params", "n_envs:4", "n_steps:16", "batch_size:32", "n_epochs:1"]


def test_a_run_and_what_is_made_of_it(tmp_path: Path) -> None:
    evaluation = ["--eval-freq", "64", "--eval-episodes", "1"]
    process = run_zoo("train", "--algo", "hppo", *FRUITBOT, "-n", "64", *evaluation, *SMALL, cwd=tmp_path)
    assert "Eval num_timesteps=64" in process.stdout
    run = tmp_path / "logs/hppo/procgen-fruitbot-v0_1"
    saved = yaml.unsafe_load((run / "procgen-fruitbot-v0/config.yml").read_text())
    assert saved["env_kwargs"] == {"distribution_mode": "easy", "num_levels": 200}
    assert saved["eval_env_kwargs"] == {"distribution_mode": "easy"}
    # One file for each environment, from the batch: the first one was closed, and wrote none of its own.
    assert len(list(run.glob("*.monitor.csv"))) == 4
    options = ["-f", "logs", "-n", "300", "--no-render", "--stochastic", "--seed", "2", "--num-threads", "1"]
    process = run_zoo("enjoy", "--algo", "hppo", "--env", "procgen-fruitbot-v0", *options, cwd=tmp_path)
    lengths = [int(text) for text in re.findall(r"Episode Length (\d+)", process.stdout)]
    assert len(lengths) >= 2  # a random policy's end after about 80 steps
    # The same episodes, on levels that the training did not see; and those of the training.
    assert main(["evaluate", str(run), "--n-episodes", str(len(lengths)), "--n-envs", "1", "--seed", "2"]) == 0
    evaluations = json.loads((run / "evaluation.json").read_text())["evaluations"]
    assert evaluations["unseen levels"]["lengths"] == lengths != evaluations["training levels"]["lengths"]
    assert evaluations["training levels"]["env_kwargs"]["num_levels"] == 200
    assert evaluations["unseen levels"]["successes"] == [False] * len(lengths)
    run_zoo("record_video", "--algo", "hppo", "--env", "procgen-fruitbot-v0", "-f", "logs", "-n", "12", cwd=tmp_path)
    (video,) = run.glob("videos/*.mp4")
    frames = read_video(video)
    assert frames.shape[1:] == (512, 512, 3)
    assert frames[0].std() > 10
    assert (frames[0] != frames[-1]).any()


def test_evaluation_follows_the_command_line(tmp_path: Path) -> None:
    options = ["-n", "64", "--eval-freq", "-1", *SMALL, "--env-kwargs", "distribution_mode:'hard'", "num_levels:50"]
    run_zoo("train", "--algo", "hppo", *FRUITBOT, *options, cwd=tmp_path)
    saved = yaml.unsafe_load((tmp_path / "logs/hppo/procgen-fruitbot-v0_1/procgen-fruitbot-v0/config.yml").read_text())
    assert saved["env_kwargs"] == {"distribution_mode": "hard", "num_levels": 50}
    assert saved["eval_env_kwargs"] == {"distribution_mode": "hard"}  # levels remain those that training does not know


@pytest.mark.parametrize(
    ("given", "usual", "wanted", "expected"),
    [
        ({"mode": "hard"}, {"mode": "easy", "levels": 9}, {"mode": "easy"}, {"mode": "hard"}),
        ({"levels": 5}, {"mode": "easy", "levels": 9}, {"mode": "easy"}, {}),
        ({"levels": 5}, {"levels": 9}, {"levels": 0}, {"levels": 0}),
        ({"new": 1, "levels": 5}, {"levels": 9}, {"levels": 0, "width": 64}, {"new": 1, "levels": 0, "width": 64}),
    ],
)
def test_what_evaluation_has_otherwise_stays_so(
    given: dict[str, Any], usual: dict[str, Any], wanted: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert follow_env_kwargs(given, usual, wanted) == expected


def test_the_zoo_s_own_algorithms_find_our_entries(tmp_path: Path) -> None:
    for algorithm, small in (("ppo", SMALL), ("a2c", SMALL[:2])):
        options = ["-n", "64", "--eval-freq", "-1", *small]
        process = run_zoo("train", "--algo", algorithm, *COINRUN, *options, cwd=tmp_path)
        assert f"sb3_hrl/hyperparams/{algorithm}.yml" in process.stdout
        assert (tmp_path / f"logs/{algorithm}/procgen-coinrun-v0_1/procgen-coinrun-v0.zip").is_file()
    # Other environments keep the zoo's file.
    process = run_zoo("train", "--algo", "ppo", "--env", "CartPole-v1", "-n", "32", "--eval-freq", "-1", cwd=tmp_path)
    assert "rl_zoo3/hyperparams/ppo.yml" in process.stdout


def test_bad_options_are_named_and_nothing_is_created(tmp_path: Path) -> None:
    process = run_zoo(
        "train", "--algo", "hppo", *COINRUN, "-n", "64", *SMALL, "--env-kwargs", "start_level:5", cwd=tmp_path, returncode=2
    )
    assert (
        "error: env_kwargs: procgen-coinrun-v0: start_level: 5 would have no effect, since num_levels is 0" in process.stderr
    )
    assert list(tmp_path.iterdir()) == []
