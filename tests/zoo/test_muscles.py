"""Bodies with muscles, in the zoo's commands: the model's muscles are wherever it acts."""

from pathlib import Path

import numpy as np
import optuna
import pytest

from sb3_hrl.hppo import HPPO
from sb3_hrl.zoo.samplers import convert_hppo_params
from tests.zoo.conftest import read_video, run_zoo

CONFIG = """\
MuscleArmReach-v0:
  n_timesteps: 256
  n_envs: 2
  policy: MlpPolicy
  n_steps: 64
  batch_size: 64
  vec_env_wrapper: native
  env_kwargs: {width: 96, height: 64}
  muscle_kwargs: {hidden: [16], n_pretrain: 64, pretrain_epochs: 1}
"""
ARM = ["--algo", "hppo", "--env", "MuscleArmReach-v0"]


@pytest.mark.usefixtures("opengl")
def test_train_enjoy_and_video(tmp_path: Path) -> None:
    (tmp_path / "own.yml").write_text(CONFIG)
    options = ["-conf", "own.yml", "--seed", "0", "--eval-freq", "128", "--eval-episodes", "2", "--save-freq", "128"]
    process = run_zoo("train", *ARM, *options, cwd=tmp_path)
    assert "muscle/" in process.stdout
    assert "torque_rmse" in process.stdout
    run = tmp_path / "logs/hppo/MuscleArmReach-v0_1"
    assert np.load(run / "evaluations.npz")["successes"].shape == (2, 2)
    assert (run / "best_model.zip").is_file()
    for options in ([], ["--load-checkpoint", "128"]):
        process = run_zoo("enjoy", *ARM, "-f", "logs", "--no-render", "-n", "160", *options, cwd=tmp_path)
        assert "Mean reward:" in process.stdout
    run_zoo("enjoy", *ARM, "-f", "logs", "--no-render", "-n", "20", "--load-best", "--n-envs", "2", cwd=tmp_path)
    run_zoo("record_video", *ARM, "-f", "logs", "-n", "20", "-o", "videos", cwd=tmp_path)
    (video,) = (tmp_path / "videos").glob("*.mp4")
    frames = read_video(video)
    assert frames.shape[1:] == (64, 96, 3)
    assert np.abs(frames[0].astype(int) - frames[15].astype(int)).max() > 10


def test_optimize_and_load_a_trial(tmp_path: Path) -> None:
    """Trials vary the muscles' learner, and keep what the file says of it; so does a run with a trial's numbers."""
    (tmp_path / "own.yml").write_text(CONFIG)
    study_options = ["--storage", "sqlite:///study.db", "--study-name", "s", "-conf", "own.yml", "--eval-episodes", "1"]
    trials = ["-optimize", "--n-trials", "2", "--n-startup-trials", "2", "--n-evaluations", "1", "--no-optim-plots"]
    run_zoo("train", *ARM, "-n", "600", *study_options, *trials, cwd=tmp_path)
    study = optuna.load_study(study_name="s", storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]
    assert study.trials[0].params["muscle_learning_rate"] != study.trials[1].params["muscle_learning_rate"]
    trial_options = [*study_options, "--trial-id", "1", "--eval-freq", "-1", "-params", "n_steps:8"]
    run_zoo("train", *ARM, "-n", "16", *trial_options, cwd=tmp_path)
    model = HPPO.load(max((tmp_path / "logs/hppo").glob("MuscleArmReach-v0_*")) / "MuscleArmReach-v0.zip")
    params = study.trials[1].params
    expected = convert_hppo_params(params)["muscle_kwargs"]
    assert expected["hidden"] == [2 ** params["muscle_width_pow"]] * 2
    assert model.muscle_kwargs == {"n_pretrain": 64, "pretrain_epochs": 1, **expected}


def test_presets(tmp_path: Path) -> None:
    small = ["-params", "n_envs:2", "n_steps:16", "batch_size:32", "n_epochs:1", "-n", "32"]
    for name in ("ppo_mini", "ppo_small_pc", "ppo_large_pc", "seed"):
        process = run_zoo("train", *ARM, "-conf", name, *small, "--eval-freq", "-1", "--verbose", "1", cwd=tmp_path)
        assert f"{name}.yml" in process.stdout
    process = run_zoo("train", *ARM, "-conf", "ppo_tiny", cwd=tmp_path, returncode=2)
    assert "did you mean 'ppo_mini'" in process.stderr


def test_wrong_muscle_kwargs_are_named_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "own.yml").write_text(CONFIG.replace("hidden:", "hiden:"))
    process = run_zoo("train", *ARM, "-conf", "own.yml", cwd=tmp_path, returncode=2)
    assert "own.yml:9: muscle_kwargs: there is no 'hiden', did you mean 'hidden'?" in process.stderr
    assert not (tmp_path / "logs").exists()
