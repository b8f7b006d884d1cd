"""``sb3-hrl quickstart``, which ``make train`` calls: train the default agent through the zoo, show it before and after."""

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rl_zoo3.utils import ALGOS, create_test_env, get_latest_run_id, get_saved_hyperparams
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_hrl.checkpoint import read_metadata

ALGO = "hppo"
ENV_ID = "MuscleArmReach-v0"


def run_quickstart(log_folder: str, seed: int, n_episodes: int, n_timesteps: int | None) -> int:
    """
    :param log_folder: the zoo's log folder
    :param seed: seed of the training and of both evaluations
    :param n_episodes: episodes of each evaluation
    :param n_timesteps: decisions to train for; by default those of the YAML file, about a minute on two cores
    :return: the exit code of the training
    """
    tensorboard_log = str(Path(log_folder) / "tensorboard")
    command = [sys.executable, "-m", "rl_zoo3.train", "--algo", ALGO, "--env", ENV_ID, "--seed", str(seed)]
    command += ["-f", log_folder, "-tb", tensorboard_log]
    command += [] if n_timesteps is None else ["-n", str(n_timesteps)]
    # No evaluation in between and no tables on the screen: the minute is for training, the screen for the bar.
    # One thread: with networks this small, more of them mostly wait for each other.
    command += ["--eval-freq", "-1", "--verbose", "0", "--num-threads", "1", "-P"]
    print("$", " ".join(["python", *command[1:]]), flush=True)
    exit_code = subprocess.run(command, check=False).returncode
    if exit_code != 0:
        return exit_code

    run_id = get_latest_run_id(str(Path(log_folder) / ALGO), ENV_ID)
    run_folder = Path(log_folder) / ALGO / f"{ENV_ID}_{run_id}"
    print(f"\nEvaluating {n_episodes} episodes before and after training, from the same seeds ...", flush=True)
    before, after = (_evaluate(run_folder, seed, n_episodes, is_trained) for is_trained in (False, True))
    n_done = read_metadata(run_folder / f"{ENV_ID}.zip")["num_timesteps"]
    go_on = f"--algo {ALGO} --env {ENV_ID} -f {log_folder} -i {run_folder / ENV_ID}.zip -n {2 * n_done}"
    zoo = f"--algo {ALGO} --env {ENV_ID} -f {log_folder} --exp-id {run_id}"
    print(
        f"""
Reward over {n_episodes} episodes of {ENV_ID}, seed {seed}
  before training  {_describe(before)}
  after training   {_describe(after)}

Run          {run_folder}
TensorBoard  tensorboard --logdir {tensorboard_log}

Next
  watch it     python -m rl_zoo3.enjoy {zoo}
  film it      MUJOCO_GL=egl python -m rl_zoo3.record_video {zoo} -n 450
  its curve    python -m rl_zoo3.plots.plot_train -a {ALGO} -e {ENV_ID} -f {log_folder}
  go on        python -m rl_zoo3.train {go_on}
  plug-ins     sb3-hrl plugins
(in this checkout: .venv/bin/python, or `source .venv/bin/activate` first)"""
    )
    return 0


class Result(NamedTuple):
    """Of each episode."""

    rewards: list[float]
    successes: list[bool]


def _describe(result: Result) -> str:
    n_solved, n_episodes = sum(result.successes), len(result.successes)
    rewards = f"{np.mean(result.rewards):8.1f} +/- {np.std(result.rewards):.1f}"
    return f"{rewards}, fingertip held within 2 cm of the target in {n_solved} of {n_episodes}"


def _evaluate(run_folder: Path, seed: int, n_episodes: int, is_trained: bool) -> Result:
    """
    :param run_folder: a finished run
    :param seed: seed of the environment
    :param n_episodes: how many episodes
    :param is_trained: the run's final model, or the same model as it was before its first update
    :return: how the episodes went
    """
    params_folder = str(run_folder / ENV_ID)
    hyperparams, stats_path = get_saved_hyperparams(params_folder, test_mode=True)
    env = create_test_env(ENV_ID, stats_path=stats_path, seed=seed, should_render=False, hyperparams=hyperparams)
    model: Any = ALGOS[ALGO].load(run_folder / f"{ENV_ID}.zip", env=env)
    if not is_trained:
        # The seed that built the run's policy builds it again.
        model.seed = seed
        muscles = model.muscle_level  # pretrained when the policy began
        model._setup_model()
        model.muscle_level = muscles
        env.seed(seed)
    successes: list[bool] = []

    def note_success(variables: dict[str, Any], _: dict[str, Any]) -> None:
        if variables["done"]:
            successes.append(bool(variables["info"]["is_success"]))

    rewards, _ = evaluate_policy(model, env, n_episodes, callback=note_success, return_episode_rewards=True)
    env.close()
    assert isinstance(rewards, list)
    return Result(rewards, successes)
