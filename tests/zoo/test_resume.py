"""Checkpoints in the zoo: real processes, real signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import yaml
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize

from sb3_hrl.checkpoint import archive, newest
from tests.zoo.conftest import assert_same_end, run_zoo

CONFIG = """\
Hopper-v5:
  n_timesteps: 512
  n_envs: 2
  policy: MlpPolicy
  n_steps: 32
  batch_size: 32
  n_epochs: 2
  normalize: true
  learning_rate: lin_1e-3
  vec_env_wrapper: native
  env_wrapper: {action_hold: {start_seconds: 0.03, end_seconds: 0.008, anneal_decisions: 200}}
  policy_kwargs: {net_arch: [16]}
"""
TRAIN = [
    "--algo",
    "hppo",
    "--env",
    "Hopper-v5",
    "-conf",
    "own.yml",
    "--eval-freq",
    "128",
    "--eval-episodes",
    "2",
    "--seed",
    "3",
]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a finished run that has checkpoints."""
    cwd = tmp_path_factory.mktemp("zoo")
    (cwd / "own.yml").write_text(CONFIG)
    run_zoo("train", *TRAIN, "--save-freq", "128", "-tb", "tb", cwd=cwd)
    return cwd


def test_a_run_goes_on_exactly(straight: Path) -> None:
    parent = Path("logs/hppo/Hopper-v5_1")
    cut = parent / "rl_model_256_steps.zip"
    process = run_zoo("train", *TRAIN, "-i", str(cut), "--save-freq", "128", "-tb", "tb", cwd=straight)
    assert "Continuing at step 256 of 512" in process.stdout
    assert "different" not in process.stdout
    runs = straight / parent, straight / "logs/hppo/Hopper-v5_2"
    assert_same_end(runs[0] / "Hopper-v5.zip", runs[1] / "Hopper-v5.zip")
    left, right = (np.load(run / "evaluations.npz") for run in runs)
    assert np.array_equal(left["results"], right["results"])
    assert np.array_equal(left["timesteps"], right["timesteps"])
    assert yaml.safe_load((runs[1] / "Hopper-v5/resumed_from.yml").read_text())[0]["path"] == str(cut)
    assert archive.read(runs[1] / "Hopper-v5.zip").metadata["resumed_from"][0]["num_timesteps"] == 256
    assert sorted(path.name for path in (straight / "tb/Hopper-v5").iterdir()) == ["HPPO_1", "HPPO_2"]
    assert archive.read(runs[0] / "best_model.zip").metadata["kind"] == "inference"
    for name in ("best_model", "Hopper-v5", "rl_model_256_steps"):
        beside = (runs[0] / f"{name}.metadata.yaml").read_bytes()
        assert beside == archive.read(runs[0] / f"{name}.zip").members["metadata.yaml"]


def test_differences_are_listed(straight: Path) -> None:
    cut = "logs/hppo/Hopper-v5_1/rl_model_384_steps.zip"
    process = run_zoo("train", *TRAIN, "-i", cut, "-params", "n_epochs:1", "-f", "other", cwd=straight)
    assert "different: n_epochs: 2 in the checkpoint, 1 now" in process.stdout


def test_what_cannot_go_on_is_refused_before_anything_is_made(straight: Path) -> None:
    end, cut = "logs/hppo/Hopper-v5_1/Hopper-v5.zip", "logs/hppo/Hopper-v5_1/rl_model_256_steps.zip"
    others = "".join(CONFIG.replace("Hopper-v5", name) for name in ("Ant-v5", "MuscleArmReach-v0"))
    (straight / "own.yml").write_text(CONFIG + others)
    for options, message in (
        (["-i", end], "it has 512 steps already, so there is nothing left of 512: give a larger total with -n"),
        (["-i", "bad.zip"], "bad.zip: the file is truncated"),
        (["-i", "ppo.zip"], "ppo.zip: it is of stable_baselines3.ppo.ppo:PPO, not of --algo hppo"),
        (["-i", cut, "--env", "Ant-v5"], f"error: -i {cut}: Observation spaces do not match: Box(-inf, inf, (11,), float64)"),
        (["-i", cut, "--env", "MuscleArmReach-v0"], f"error: -i {cut}: "),
    ):
        (straight / "bad.zip").write_bytes((straight / end).read_bytes()[:2000])
        code = (
            "from sb3_hrl.checkpoint import resumable; from stable_baselines3 import PPO\n"
            "resumable(PPO)('MlpPolicy', 'CartPole-v1', n_steps=16, batch_size=16, n_epochs=1).learn(16).save('ppo.zip')"
        )
        if "ppo.zip" in options:
            subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=straight, check=True)
        process = run_zoo("train", *TRAIN, *options, "-f", "refused", cwd=straight, returncode=2)
        assert message in process.stderr
        assert "Traceback" not in process.stderr
    assert not (straight / "refused").exists()


def test_enjoy_takes_the_statistics_of_the_checkpoint(straight: Path) -> None:
    """The zoo has one vecnormalize.pkl for all; without it being the right one, the episode differs."""
    rewards = []
    for _ in range(2):
        options = ["--load-checkpoint", "128", "-f", "logs", "--exp-id", "1", "--no-render", "-n", "200", "--seed", "1"]
        process = run_zoo("enjoy", "--algo", "hppo", "--env", "Hopper-v5", *options, cwd=straight)
        rewards.append([line for line in process.stdout.splitlines() if line.startswith("Mean reward")])
        # As if another checkpoint had left its statistics there.
        stats = str(straight / "logs/hppo/Hopper-v5_1/Hopper-v5/vecnormalize.pkl")
        normalize = VecNormalize.load(stats, make_vec_env("Hopper-v5"))
        assert isinstance(normalize.obs_rms, RunningMeanStd)
        normalize.obs_rms.mean += 1
        normalize.save(stats)
    assert rewards[0]
    assert rewards[0] == rewards[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_signals(number: signal.Signals, straight: Path, tmp_path: Path) -> None:
    """The checkpoint that a signal leaves goes on to the straight run's end."""
    (tmp_path / "own.yml").write_text(CONFIG)
    line = [sys.executable, "-m", "rl_zoo3.train", *TRAIN, "-n", "1000000"]
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        run = tmp_path / "logs/hppo/Hopper-v5_1"
        deadline = time.monotonic() + 120
        while not (run / "evaluations.npz").is_file():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == (0 if number == signal.SIGINT else 128 + number), errors
    checkpoint = newest(run)
    assert checkpoint is not None
    metadata = archive.read(checkpoint).metadata
    assert metadata["num_timesteps"] % 64 == 0
    if number == signal.SIGINT:
        assert checkpoint.name == "Hopper-v5.zip"  # as the zoo does it
    else:
        assert f"{number.name}: the checkpoint is" in errors
    more = str(metadata["num_timesteps"] + 64)
    process_again = run_zoo("train", *TRAIN, "-i", str(checkpoint), "-n", more, cwd=tmp_path)
    assert f"Continuing at step {metadata['num_timesteps']}" in process_again.stdout


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    code = (
        "import time; from sb3_hrl.checkpoint.signals import SavingSignals\n"
        "signals = SavingSignals(lambda: time.sleep(60)); signals.install(); print('ready', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGUSR1)
        assert process.wait(30) == 128 + signal.SIGUSR1


def test_the_command_goes_on_with_a_run(straight: Path, tmp_path: Path) -> None:
    """It takes the run's own arguments, and the straight run's end comes out; of a timed run, the rest of the time."""
    (tmp_path / "own.yml").write_text(CONFIG)
    command = [sys.executable, "-m", "sb3_hrl.experiments.cli", "train"]
    options = ["--seed", "3", "-conf", "own.yml", "--eval-freq", "128", "--eval-episodes", "2"]
    first = [
        *command,
        "--algo",
        "hppo",
        "--env",
        "Hopper-v5",
        *options,
        "--save-freq",
        "64",
        "-n",
        "256",
        "--output-dir",
        "cut",
    ]
    subprocess.run(first, cwd=tmp_path, check=True, capture_output=True)
    # The linear schedule knows the total: cut the run that was to have 512 steps.
    cut = straight / "logs/hppo/Hopper-v5_1/rl_model_384_steps.zip"
    for path in (tmp_path / "cut").glob("*.zip"):
        path.unlink()
    archive.write(tmp_path / "cut" / cut.name, cut.read_bytes())
    again = [*command, "--resume", "cut", "-n", "512", "--output-dir", "again"]
    process = subprocess.run(again, cwd=tmp_path, check=False, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    end = straight / "logs/hppo/Hopper-v5_1/Hopper-v5.zip"
    assert_same_end(tmp_path / "again/Hopper-v5.zip", end, has_same_callbacks=False)  # there is a progress bar
    process = subprocess.run([*command, "--resume", "missing"], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert process.returncode == 2
    assert "--resume: missing: there is no such checkpoint or run folder" in process.stderr


def test_keys_for_checkpoints(tmp_path: Path) -> None:
    keys = "  save_optimizer: false\n  keep_checkpoints: 1\n"
    (tmp_path / "own.yml").write_text(CONFIG + keys)
    run_zoo("train", *TRAIN, "-n", "256", "--save-freq", "64", cwd=tmp_path)
    run = tmp_path / "logs/hppo/Hopper-v5_1"
    assert [path.name for path in run.glob("rl_model_*.zip")] == ["rl_model_256_steps.zip"]
    assert archive.read(run / "Hopper-v5.zip").metadata["kind"] == "inference"
    (tmp_path / "own.yml").write_text(CONFIG + "  keep_checkpoints: 0\n")
    process = run_zoo("train", *TRAIN, cwd=tmp_path, returncode=2)
    assert "keep_checkpoints: expected a whole number of at least 1, got 0" in process.stderr
