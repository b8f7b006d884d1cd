"""``n_actors`` in the zoo: train, evaluate, enjoy."""

from pathlib import Path

import numpy as np

from tests.zoo.conftest import assert_same_end, run_zoo

CONFIG = """\
Hopper-v5:
  n_timesteps: 512
  n_envs: 4
  n_actors: 2
  policy: MlpPolicy
  n_steps: 64
  batch_size: 64
  n_epochs: 1
  normalize: true
  frame_stack: 2
  env_kwargs: {reset_noise_scale: 0.01}
  env_wrapper: {action_hold: {hold_seconds: 0.016}}
  vec_env_wrapper: native
"""
TRAIN = ["--algo", "hppo", "--env", "Hopper-v5", "-conf", "own.yml", "--seed", "0"]


def test_train_and_go_on_and_enjoy(tmp_path: Path) -> None:
    (tmp_path / "own.yml").write_text(CONFIG)
    train = ["train", *TRAIN, "--eval-freq", "256", "--eval-episodes", "2", "--save-freq", "256"]
    process = run_zoo(*train, cwd=tmp_path)
    assert "actor_restarts" in process.stdout
    assert "is used as it is" not in process.stderr  # the wrapper was native, in the actors
    assert "Warning" not in process.stderr
    run = tmp_path / "logs/hppo/Hopper-v5_1"
    starts = set()
    for rank in range(4):
        rows = np.loadtxt(run / f"{rank}.monitor.csv", delimiter=",", skiprows=2, usecols=(0, 1), ndmin=2)
        assert len(rows) > 1
        starts.add(tuple(rows[0]))
    assert len(starts) == 4  # seeds of their own
    assert np.load(run / "evaluations.npz")["timesteps"].tolist() == [256, 512]
    assert (run / "rl_model_512_steps.zip").is_file()
    assert (run / "Hopper-v5" / "vecnormalize.pkl").is_file()
    again = run_zoo(*train, "-i", str(run / "rl_model_256_steps.zip"), cwd=tmp_path)
    assert "Continuing at step 256 of 512" in again.stdout
    assert "Warning" not in again.stderr
    assert_same_end(run / "Hopper-v5.zip", tmp_path / "logs/hppo/Hopper-v5_2/Hopper-v5.zip")
    common = ["--algo", "hppo", "--env", "Hopper-v5", "-f", "logs"]
    assert "Mean reward:" in run_zoo("enjoy", *common, "--no-render", "-n", "100", cwd=tmp_path).stdout


def test_uneven_shares_are_refused_before_anything_exists(tmp_path: Path) -> None:
    (tmp_path / "own.yml").write_text(CONFIG)
    process = run_zoo("train", *TRAIN, "-params", "n_actors:3", cwd=tmp_path, returncode=2)
    assert "4 environments cannot be shared out evenly among 3 actors; n_envs: 3 or 6 would fit" in process.stderr
    assert not (tmp_path / "logs").exists()
