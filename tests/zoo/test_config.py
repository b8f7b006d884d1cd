"""What a YAML says reaches every place it should, and a wrong one stops before anything is made."""

import pickle
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_hrl.hppo import HPPO
from tests.zoo.conftest import read_video, run_zoo

GOOD = """\
Hopper-v5:
  n_timesteps: 1e2
  n_envs: 2
  policy: MlpPolicy
  n_steps: 16
  batch_size: 16
  n_epochs: 1
  learning_rate: 1e-3
  normalize: true
  gamma: 0.9
  env_kwargs: {reset_noise_scale: 0.0, healthy_reward: 2.0}
  eval_env_kwargs: {reset_noise_scale: 0.0, healthy_reward: 7.0, width: 96, height: 64}
  env_wrapper:
    - action_hold: {start_seconds: 0.04, end_seconds: 0.008, anneal_decisions: 20}
"""
HOPPER = ["--algo", "hppo", "--env", "Hopper-v5"]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with action hold and with other kwargs for evaluation."""
    cwd = tmp_path_factory.mktemp("held")
    (cwd / "own.yml").write_text(GOOD)
    run_zoo("train", *HOPPER, "-conf", "own.yml", "--eval-freq", "32", "--eval-episodes", "1", "--seed", "0", cwd=cwd)
    return cwd


def test_env_kwargs_reach_training_and_evaluation(held: Path) -> None:
    run = held / "logs/hppo/Hopper-v5_1"
    model = HPPO.load(run / "Hopper-v5.zip")
    assert model.num_timesteps == 128  # n_timesteps: 1e2, in whole rollouts of 32
    assert model.hold_decisions == 64
    # An untrained Hopper earns little beside its healthy reward: 2 for each step in training, 7 in evaluation.
    rows = np.loadtxt(run / "0.monitor.csv", delimiter=",", skiprows=2, ndmin=2)
    assert np.all(np.abs(rows[:, 0] / rows[:, 1] - 2) < 1.5)
    evaluations = np.load(run / "evaluations.npz")
    assert np.all(np.abs(evaluations["results"] / evaluations["ep_lengths"] - 7) < 1.5)


def test_eval_env_kwargs_reach_enjoy(held: Path) -> None:
    enjoy = ["enjoy", *HOPPER, "-f", "logs", "--no-render", "-n", "150"]
    output = run_zoo(*enjoy, cwd=held).stdout
    decisions = _value(output, "Mean episode length:")
    # The hold has been annealed to one step by now, so that a decision is a step: the task's own units.
    assert abs(_value(output, "Mean reward:") / decisions - 7) < 1.5
    # The command line has the last word.
    output = run_zoo(*enjoy, "--env-kwargs", "healthy_reward:20.0", cwd=held).stdout
    assert abs(_value(output, "Mean reward:") / _value(output, "Mean episode length:") - 20) < 1.5


def _value(output: str, label: str) -> float:
    return float(output.split(label)[1].split()[0])


@pytest.mark.usefixtures("opengl")
def test_eval_env_kwargs_reach_video(held: Path, tmp_path: Path) -> None:
    run_zoo("record_video", *HOPPER, "-f", "logs", "-n", "5", "-o", str(tmp_path), cwd=held)
    (video,) = tmp_path.glob("*.mp4")
    assert read_video(video).shape[1:] == (64, 96, 3)


@pytest.mark.parametrize(
    ("wrong", "right", "message"),
    [
        ("n_step: 16", "n_steps: 16", "own.yml:5: unknown key 'n_step', did you mean 'n_steps'?"),
        ("action_hld:", "action_hold:", "own.yml:14"),
    ],
)
def test_a_wrong_yaml_stops_before_anything_is_made(tmp_path: Path, wrong: str, right: str, message: str) -> None:
    assert right in GOOD
    (tmp_path / "own.yml").write_text(GOOD.replace(right, wrong))
    process = run_zoo("train", *HOPPER, "-conf", "own.yml", cwd=tmp_path, returncode=2)
    assert message in process.stderr
    assert "Traceback" not in process.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["own.yml"]


def test_a_stray_vecnormalize_is_not_taken_into_a_new_run(tmp_path: Path) -> None:
    stray = VecNormalize(DummyVecEnv([lambda: gym.make("Hopper-v5")]))
    assert isinstance(stray.obs_rms, RunningMeanStd)
    stray.obs_rms.mean[:] = 1e6
    (tmp_path / "Hopper-v5").mkdir()
    stray.save(str(tmp_path / "Hopper-v5/vecnormalize.pkl"))
    (tmp_path / "own.yml").write_text(GOOD)
    process = run_zoo("train", *HOPPER, "-conf", "own.yml", "-n", "32", "--eval-freq", "-1", cwd=tmp_path)
    assert "Loading saved VecNormalize stats" not in process.stdout
    with open(tmp_path / "logs/hppo/Hopper-v5_1/Hopper-v5/vecnormalize.pkl", "rb") as file:
        assert np.abs(pickle.load(file).obs_rms.mean).max() < 100
