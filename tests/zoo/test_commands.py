"""Every zoo command knows hppo, with nothing but the install."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import optuna
import pytest
import yaml
from optuna.storages.journal import JournalFileBackend
from stable_baselines3 import PPO

from sb3_hrl.hppo import HPPO
from tests.zoo.conftest import SMALL, read_video, run_zoo

HOPPER = ["--algo", "hppo", "--env", "Hopper-v5"]
PENDULUM = ["--algo", "hppo", "--env", "Pendulum-v1"]


def test_train_leaves_what_the_zoo_promises(trained: Path) -> None:
    run = trained / "logs/hppo/Hopper-v5_1"
    for name in ("Hopper-v5.zip", "best_model.zip", "evaluations.npz", "rl_model_128_steps.zip", "rl_model_256_steps.zip"):
        assert (run / name).is_file(), name
    for name in ("config.yml", "args.yml", "command.txt", "vecnormalize.pkl"):
        assert (run / "Hopper-v5" / name).is_file(), name
    assert (run / "0.monitor.csv").is_file()
    assert (run / "1.monitor.csv").is_file()
    assert list((trained / "tb/Hopper-v5").glob("HPPO_1/events.*"))
    assert np.load(run / "evaluations.npz")["timesteps"].tolist() == [128, 256]
    config = yaml.load((run / "Hopper-v5/config.yml").read_text(), Loader=yaml.UnsafeLoader)
    assert dict(config)["learning_rate"] == 5e-4  # `5e-4` in the YAML, a float in the run
    assert HPPO.load(run / "Hopper-v5.zip").num_timesteps == 256


@pytest.mark.parametrize(
    ("options", "loaded"),
    [
        ([], "Hopper-v5.zip"),
        (["--load-best"], "best_model.zip"),
        (["--load-last-checkpoint"], "rl_model_256_steps.zip"),
        (["--load-checkpoint", "128"], "rl_model_128_steps.zip"),
    ],
)
def test_enjoy(trained: Path, options: list[str], loaded: str) -> None:
    process = run_zoo("enjoy", *HOPPER, "-f", "logs", "--no-render", "-n", "200", *options, cwd=trained)
    assert f"Loading logs/hppo/Hopper-v5_1/{loaded}" in process.stdout
    assert "Mean reward:" in process.stdout


def test_continue(trained: Path, tmp_path: Path) -> None:
    agent = trained / "logs/hppo/Hopper-v5_1/Hopper-v5.zip"
    process = run_zoo("train", *HOPPER, "-n", "320", "-i", str(agent), "--eval-freq", "-1", *SMALL, cwd=tmp_path)
    assert "Loading pretrained agent" in process.stdout
    assert "Continuing at step 256 of 320" in process.stdout
    before, after = HPPO.load(agent), HPPO.load(tmp_path / "logs/hppo/Hopper-v5_1/Hopper-v5.zip")
    assert after._n_updates == before._n_updates + 1


@pytest.mark.usefixtures("opengl")
def test_record_video(trained: Path) -> None:
    run_zoo("record_video", *HOPPER, "-f", "logs", "-n", "40", "-o", "videos", cwd=trained)
    (video,) = (trained / "videos").glob("*.mp4")
    frames = read_video(video)
    assert frames.shape[0] >= 40
    assert frames.std() > 10  # a picture, not a blank
    assert np.abs(frames[0].astype(int) - frames[20].astype(int)).max() > 10  # that moves


def test_plots(trained: Path) -> None:
    run_zoo("plots.plot_train", "-a", "hppo", "-e", "Hopper-v5", "-f", "logs", cwd=trained)
    run_zoo("plots.all_plots", "-a", "hppo", "-e", "Hopper-v5", "-f", "logs", "--no-display", "-o", "results", cwd=trained)
    assert (trained / "results.pkl").is_file()


def test_the_zoo_s_own_command(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("rl_zoo3")
    line = [str(script), "train", *PENDULUM, "-n", "64", "--vec-env", "subproc", "--eval-freq", "-1", *SMALL]
    subprocess.run(line, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "logs/hppo/Pendulum-v1_1/Pendulum-v1.zip").is_file()


def test_stock_algorithms_stay_stock(tmp_path: Path) -> None:
    process = run_zoo("train", "--algo", "ppo", "--env", "Pendulum-v1", "-n", "64", "--eval-freq", "-1", *SMALL, cwd=tmp_path)
    assert "rl_zoo3/hyperparams/ppo.yml" in process.stdout
    PPO.load(tmp_path / "logs/ppo/Pendulum-v1_1/Pendulum-v1.zip")


def test_without_the_hook_and_the_way_round_it(tmp_path: Path) -> None:
    process = run_zoo("train", *PENDULUM, cwd=tmp_path, returncode=2, SB3_HRL_NO_ZOO_HOOK="1")
    assert "invalid choice: 'hppo'" in process.stderr
    line = [sys.executable, "-m", "sb3_hrl.zoo", "train", *PENDULUM, "-n", "64", "--eval-freq", "-1", *SMALL]
    subprocess.run(line, cwd=tmp_path, check=True, capture_output=True, env={**os.environ, "SB3_HRL_NO_ZOO_HOOK": "1"})
    assert (tmp_path / "logs/hppo/Pendulum-v1_1/Pendulum-v1.zip").is_file()


# --- Optuna

OPTIMIZE = [*PENDULUM, "-n", "600", "-optimize", "--n-trials", "2", "--n-evaluations", "1", "--no-optim-plots"]
# The smallest rollout that the search space knows is 512 decisions.
TUNED = ["--eval-episodes", "1", "--n-startup-trials", "2", "-params", "n_envs:2"]


HELD = """\
default:
  n_timesteps: 600
  n_envs: 2
  policy: MlpPolicy
  env_wrapper: {action_hold: {hold_seconds: 0.1}}
  callback: note.Note
"""
NOTE = """\
from stable_baselines3.common.callbacks import BaseCallback

class Note(BaseCallback):
    def _on_step(self):
        with open("gammas.txt", "a") as file:
            file.write(f"{self.model.gamma} {self.training_env.get_attr('gamma')[0]}\\n")
        return True
"""


@pytest.mark.parametrize("storage", ["sqlite:///study.db", "study.log"])
def test_optimize_and_load_a_trial(tmp_path: Path, storage: str) -> None:
    (tmp_path / "own.yml").write_text(HELD)
    (tmp_path / "note.py").write_text(NOTE)
    study_options = ["--storage", storage, "--study-name", "s", "-conf", "own.yml"]
    run_zoo("train", *OPTIMIZE, *study_options, "--n-jobs", "2", *TUNED, cwd=tmp_path)
    study = _load_study(tmp_path, storage)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "COMPLETE"]
    # Each trial's model handed its own gamma to its environments, though the two ran side by side.
    gammas = {tuple(map(float, line.split())) for line in (tmp_path / "gammas.txt").read_text().splitlines()}
    assert gammas == {(trial.user_attrs["gamma"],) * 2 for trial in study.trials}
    # Trial 0 as well as any other: the zoo itself takes number 0 for none.
    trial_id = 0 if storage.startswith("sqlite") else 1
    trial_options = [*study_options, "--trial-id", str(trial_id), "--eval-freq", "-1"]
    run_zoo("train", *PENDULUM, "-n", "16", *trial_options, "-params", "n_envs:2", "n_steps:8", cwd=tmp_path)
    run = max((tmp_path / "logs/hppo").glob("Pendulum-v1_*"))
    model = HPPO.load(run / "Pendulum-v1.zip")
    trial = study.trials[trial_id]
    assert model.gamma == trial.user_attrs["gamma"] != study.trials[1 - trial_id].user_attrs["gamma"]
    assert model.batch_size == trial.user_attrs["batch_size"]
    assert model.n_steps == 8  # the command line has the last word


def _load_study(folder: Path, storage: str) -> optuna.Study:
    if storage.startswith("sqlite:///"):
        return optuna.load_study(study_name="s", storage=f"sqlite:///{folder / storage.removeprefix('sqlite:///')}")
    backend = JournalFileBackend(str(folder / storage))
    return optuna.load_study(study_name="s", storage=optuna.storages.JournalStorage(backend))
