"""``sb3-hrl bench preset``: a file that the zoo takes."""

from pathlib import Path

import pytest
import yaml

from sb3_hrl.experiments.cli import main
from sb3_hrl.experiments.preset import Rate, choose
from sb3_hrl.hppo import HPPO
from sb3_hrl.zoo.validation import HYPERPARAMS, check_config
from sb3_hrl_plugins.impala import IMPALA

SMALL = ["--n-envs-list", "2", "--n-threads-list", "1", "--rounds", "1"]


def test_it_writes_what_the_zoo_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yml"
    assert main(["bench", "preset", "-conf", "ppo_sequential", "-o", str(file), *SMALL]) == 0
    check_config(str(file), "procgen-maze-v0", HPPO, is_atari=False, overrides=None)
    written = yaml.safe_load(file.read_text())["default"]
    given = yaml.safe_load((HYPERPARAMS / "presets/ppo_sequential.yml").read_text())["default"]
    assert written == {**given, "n_envs": 2, "n_steps": 32 * 128 // 2}
    assert "--num-threads 1" in file.read_text()
    assert f"-conf {file} --num-threads 1" in capsys.readouterr().out


def test_what_only_the_zoo_reads_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = tmp_path / "given.yml"
    given.write_text(
        "default: {n_envs: 4, n_timesteps: 1e5, policy: MlpPolicy, n_steps: 1e2, clip_range: lin_0.2,\n"
        "  learning_rate: lin_1e-3, env_wrapper: [gymnasium.wrappers.FlattenObservation], keep_checkpoints: 2, n_actors: 2,\n"
        "  policy_kwargs: 'dict(activation_fn=nn.ReLU)'}\n"
    )
    file = tmp_path / "mine.yml"
    assert main(["bench", "preset", "--env", "Pendulum-v1", "-conf", str(given), "-o", str(file), *SMALL]) == 0
    assert "Not measured, since it is done without: env_wrapper\n" in capsys.readouterr().out
    written = yaml.safe_load(file.read_text())["default"]
    assert written == {**yaml.safe_load(given.read_text())["default"], "n_envs": 2, "n_steps": 200}


def test_impala_with_actors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yml"
    command = ["bench", "preset", "--algo", "impala", "-conf", "impala_parallel", "-o", str(file), "--n-threads-list", "1"]
    assert main([*command, "--rounds", "1", "--n-envs-list", "4", "8"]) == 0
    check_config(str(file), "procgen-maze-v0", IMPALA, is_atari=False, overrides=None)
    written = yaml.safe_load(file.read_text())["default"]
    assert written["n_actors"] == 4
    assert written["n_envs"] in (4, 8)
    assert written["n_envs"] * written["n_steps"] == 32 * 128
    assert f"--algo impala --env procgen-coinrun-v0 -conf {file}" in capsys.readouterr().out


def test_an_unroll_stays_within_a_minibatch(tmp_path: Path) -> None:
    given, file = tmp_path / "given.yml", tmp_path / "mine.yml"
    command = ["bench", "preset", "--algo", "impala", "--env", "Pendulum-v1", "-conf", str(given), "-o", str(file), *SMALL]
    for n_steps, batch_size, expected in ((16, 64, 64), (16, 32, 16)):  # of 8 environments, for 2
        settings = f"n_envs: 8, n_timesteps: 1e5, policy: MlpPolicy, n_steps: {n_steps}, batch_size: {batch_size}"
        given.write_text(f"default: {{{settings}}}")
        assert main(command) == 0
        check_config(str(file), "Pendulum-v1", IMPALA, is_atari=False, overrides=None)
        assert yaml.safe_load(file.read_text())["default"]["n_steps"] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--algo", "imapla"], "no sb3_hrl.algorithms plug-in is named 'imapla', did you mean 'impala'?"),
        (["-conf", "ppo_parallel"], "n_envs is the total: 2 environments cannot be shared out evenly among 4 actors"),
        (
            ["--env", "procgen-coinrum-v0"],
            "--env: there is no environment 'procgen-coinrum-v0', did you mean 'procgen-coinrun-v0'?",
        ),
        (["-conf", "ppo_sequentiall"], "-conf ppo_sequentiall: no preset and no package has this name"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    assert main(["bench", "preset", "-o", str(tmp_path / "mine.yml"), *arguments, *SMALL]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_fewest_environments_that_are_fast_enough() -> None:
    rates = [Rate(16, 1, 500.0), Rate(32, 1, 980.0), Rate(32, 2, 990.0), Rate(64, 2, 1000.0)]
    assert choose(rates) == Rate(32, 2, 990.0)
    assert choose([*rates, Rate(64, 1, 1100.0)]) == Rate(64, 1, 1100.0)
