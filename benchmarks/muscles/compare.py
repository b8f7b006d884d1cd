"""
What the hierarchy is worth: the same body, task and budget, trained in several ways.

    python -m benchmarks.muscles.compare METHOD [METHOD ...] [--env MuscleArmReach-v0] [--seeds 3] [--n-timesteps N] \\
        [--folder NAME]
    python -m benchmarks.muscles.compare --report [FIGURE ...]   # table and curves of what has been run

Methods:

hppo           joint targets, learned muscle network
hppo_qp        joint targets, exact programme instead of the network: what the network's error costs
hppo_frozen    joint targets, a network that only saw random poses
hppo_torque    joint targets, the wanted torques applied without muscles: what the joint targets alone give
ppo_muscles    SB3's PPO on the activations of the same body
ppo_muscles_normalized  the same with normalised observations and rewards, also where hppo has none
sac_muscles    SB3's SAC on the same, one gradient step for every four steps of an environment
sac_muscles_full  the same with SAC's usual one gradient step for every step
ppo_torque     SB3's PPO on joint torques

The first four know the body's moment arms and inertia, which the others do not. PPO has hppo's hyperparameters (``hppo.yml``),
SAC those of SB3 and hppo's gamma. Every run is evaluated on episodes of other seeds, deterministically, ten times on the way;
the clock stands still meanwhile. A body that is told how fast to walk is evaluated at each of some speeds, too. Runs go one
after the other, natively, with all cores. Each is one file ``results/muscles/FOLDER/METHOD_SEED.json``; running it again
replaces it. The folder is the environment's name unless ``--folder`` says otherwise: for another budget, say.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch as th
import yaml
from rich.console import Console
from rich.table import Table
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from sb3_hrl.experiments.machine import describe_machine
from sb3_hrl.hppo import HPPO
from sb3_hrl.registry import get_spec
from sb3_hrl.vec_env import NativeVecEnv
from sb3_hrl.zoo.validation import normalise

RESULTS = Path(__file__).parents[1] / "results" / "muscles"
N_EVALUATIONS = 10
N_EPISODES = {"on the way": 50, "at the end": 100}
EVAL_SEED = 1_000_000
SPEEDS = (0.8, 1.0, 1.2, 1.4, 1.6)
# Method -> algorithm, actuation, and what is its own: hppo's muscle_kwargs on top of the YAML's, whether PPO's environments
# are normalised, SAC's arguments.
METHODS: dict[str, tuple[type[BaseAlgorithm], str, dict[str, Any]]] = {
    "hppo": (HPPO, "muscle_hrl", {}),
    "hppo_qp": (HPPO, "muscle_hrl", {"low_level": "qp"}),
    "hppo_frozen": (HPPO, "muscle_hrl", {"is_frozen": True}),
    "hppo_torque": (HPPO, "muscle_hrl", {"low_level": "torque"}),
    "ppo_muscles": (PPO, "muscle_e2e", {}),
    "ppo_muscles_normalized": (PPO, "muscle_e2e", {"normalize": True}),
    "sac_muscles": (SAC, "muscle_e2e", {"gradient_steps": 4}),
    "sac_muscles_full": (SAC, "muscle_e2e", {"gradient_steps": 16}),
    "ppo_torque": (PPO, "torque", {}),
}


def read_hyperparams(env_id: str) -> dict[str, Any]:
    """
    :param env_id: the environment
    :return: its section of ``hppo.yml``, without what belongs to the zoo
    """
    sections = yaml.safe_load(get_spec("hppo").hyperparams_path.read_text())
    hyperparams = normalise(sections[env_id], HPPO)
    hyperparams.pop("vec_env_wrapper")
    for key in ("learning_rate", "clip_range"):
        if isinstance(hyperparams[key], str):
            start = float(hyperparams[key].removeprefix("lin_"))
            hyperparams[key] = lambda progress_remaining, start=start: progress_remaining * start
    return hyperparams


def make_model(method: str, env: VecEnv, hyperparams: dict[str, Any], seed: int) -> BaseAlgorithm:
    """
    :param method: a key of ``METHODS``
    :param env: the environments
    :param hyperparams: of hppo
    :param seed: of everything
    :return: the model
    """
    algorithm, _, own = METHODS[method]
    common: dict[str, Any] = {"policy": "MlpPolicy", "env": env, "seed": seed, "device": "cpu"}
    if algorithm is SAC:
        return SAC(**common, gamma=hyperparams["gamma"], train_freq=1, **own)
    kwargs = {key: value for key, value in hyperparams.items() if key != "policy"}
    if algorithm is HPPO:
        kwargs["muscle_kwargs"] = {**kwargs.get("muscle_kwargs", {}), **own}
        return HPPO(**common, **kwargs)
    log_std = kwargs.pop("log_std", 0.0)
    kwargs.pop("muscle_kwargs", None)
    kwargs["policy_kwargs"] = {**kwargs.get("policy_kwargs", {}), "log_std_init": log_std}
    return PPO(**common, **kwargs)


class Evaluation(BaseCallback):
    """
    Evaluates ten times on the way, at equal distances, and stops the clock meanwhile.

    :param env: other environments
    :param n_timesteps: of the training
    """

    def __init__(self, env: VecEnv, n_timesteps: int) -> None:
        super().__init__()
        self.env, self.n_timesteps = env, n_timesteps
        self.points: list[dict[str, float]] = []
        self.begin = time.perf_counter()

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.n_timesteps * (len(self.points) + 1) / N_EVALUATIONS:
            self.evaluate("on the way")
        return True

    def evaluate(self, when: str) -> None:
        """Add one point."""
        pause = time.perf_counter()
        figures = evaluate(self.model, self.env, N_EPISODES[when])
        self.points.append({"timesteps": self.num_timesteps, "seconds": pause - self.begin, **figures})
        self.begin += time.perf_counter() - pause


def evaluate(model: BaseAlgorithm, env: VecEnv, n_episodes: int) -> dict[str, float]:
    """
    :param model: the model
    :param env: environments that the training does not see
    :param n_episodes: how many episodes
    :return: means over the episodes
    """
    normalize = model.get_vec_normalize_env()
    if normalize is not None:
        assert isinstance(env, VecNormalize)
        env.obs_rms = normalize.obs_rms
    last: list[dict[str, Any]] = []
    speed_errors: list[float] = []

    def keep(variables: dict[str, Any], _: dict[str, Any]) -> None:
        info = variables["info"]
        if "mean_speed" in info:
            speed_errors.append(abs(info["mean_speed"] - info["target_speed"]))
        if variables["done"]:
            last.append(dict(info))

    env.seed(EVAL_SEED)
    rewards, lengths = evaluate_policy(model, env, n_episodes, callback=keep, return_episode_rewards=True)
    figures = {"reward": float(np.mean(rewards)), "length": float(np.mean(lengths))}
    if "is_success" in last[0]:
        figures["success"] = float(np.mean([info["is_success"] for info in last]))
    for key in ("x_position", "mean_speed", "target_speed", "effort"):
        if key in last[0]:
            figures[key] = float(np.mean([info[key] for info in last]))
    if speed_errors:
        figures["speed_error"] = float(np.mean(speed_errors))
    if "terminal_reason" in last[0]:
        figures["falls"] = float(np.mean([not info["TimeLimit.truncated"] for info in last]))
    return figures


def evaluate_speeds(model: BaseAlgorithm, env_id: str, actuation: str) -> list[dict[str, float]]:
    """
    :param model: a model that was trained with a ``VecNormalize``
    :param env_id: its environment
    :param actuation: its actuation
    :return: what ``evaluate`` gives at each speed, over 20 episodes
    """
    figures = []
    for speed in SPEEDS:
        venv = NativeVecEnv(env_id, 10, env_kwargs={"actuation": actuation, "target_speed": (speed, speed)})
        env = VecNormalize(venv, training=False, norm_reward=False)
        figures.append(evaluate(model, env, 20))
        env.close()
    return figures


def train(method: str, env_id: str, seed: int, n_timesteps: int | None, folder: str) -> dict[str, Any]:
    """
    :param method: a key of ``METHODS``
    :param env_id: the environment
    :param seed: of everything
    :param n_timesteps: of the training; by default the YAML's
    :param folder: part of the model's file name
    :return: the run's figures
    """
    hyperparams = read_hyperparams(env_id)
    n_envs, total = hyperparams.pop("n_envs"), int(hyperparams.pop("n_timesteps"))
    is_normalized = METHODS[method][2].get("normalize", hyperparams.pop("normalize", False))
    total = total if n_timesteps is None else n_timesteps
    env_kwargs = {"actuation": METHODS[method][1]}
    env: VecEnv = NativeVecEnv(env_id, n_envs, env_kwargs=env_kwargs)
    eval_env: VecEnv = NativeVecEnv(env_id, 10, env_kwargs=env_kwargs)
    if is_normalized:
        env = VecNormalize(env, gamma=hyperparams["gamma"])
        eval_env = VecNormalize(eval_env, training=False, norm_reward=False)
    evaluation = Evaluation(eval_env, total)
    model = make_model(method, env, hyperparams, seed)
    evaluation.begin, cpu_begin = time.perf_counter(), time.process_time()
    model.learn(total, callback=evaluation, progress_bar=True)
    seconds, cpu_seconds = time.perf_counter() - evaluation.begin, time.process_time() - cpu_begin
    figures = evaluate(model, eval_env, N_EPISODES["at the end"])
    by_speed = evaluate_speeds(model, env_id, METHODS[method][1]) if env_id == "MuscleWalkerSpeed-v0" else None
    model_file = RESULTS.parent / "models" / f"{folder}_{method}_{seed}"
    model.save(model_file)
    if isinstance(env, VecNormalize):
        env.save(f"{model_file}_vecnormalize.pkl")
    env.close()
    eval_env.close()
    return {
        "method": method,
        "env_id": env_id,
        "seed": seed,
        "n_timesteps": model.num_timesteps,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,  # of all threads, evaluations included
        "final": figures,
        "by_speed": by_speed,
        "curve": evaluation.points,
        "machine": describe_machine(),
    }


def report(folder: str, figures: list[str]) -> None:
    """
    Print a table and draw the curves: interquartile means with 95 % stratified bootstrap intervals.

    :param folder: where the runs lie
    :param figures: which of the figures, such as ``success``
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from rliable import library, metrics

    runs: dict[str, list[dict[str, Any]]] = {}
    for file in sorted((RESULTS / folder).glob("*.json")):
        run = json.loads(file.read_text())
        runs.setdefault(run["method"], []).append(run)
    columns = [text for figure in figures for text in (f"{figure}, IQM [95 %]", "each")]
    table = Table("method", "seeds", *columns, "steps", "wall clock (s)", title=folder)
    plot, axes = plt.subplots(1, len(figures), figsize=(5.5 * len(figures), 4), layout="constrained", squeeze=False)
    for method in [name for name in METHODS if name in runs]:
        cells = []
        for figure, panel in zip(figures, axes[0], strict=True):
            scores = {method: np.array([[run["final"][figure]] for run in runs[method]])}
            iqm, interval = library.get_interval_estimates(scores, lambda x: np.array([metrics.aggregate_iqm(x)]), reps=2000)
            low, high = interval[method][:, 0]
            cells += [
                f"{iqm[method][0]:.2f} [{low:.2f}, {high:.2f}]",
                " ".join(f"{value:.2f}" for value in scores[method].ravel()),
            ]
            x = np.mean([[point["timesteps"] for point in run["curve"]] for run in runs[method]], axis=0)
            y = np.array([[point[figure] for point in run["curve"]] for run in runs[method]])
            panel.plot(x, np.median(y, axis=0), marker="o", markersize=3, label=method)
            panel.fill_between(x, y.min(axis=0), y.max(axis=0), alpha=0.15)
        seconds, steps = np.median([run["seconds"] for run in runs[method]]), runs[method][0]["n_timesteps"]
        table.add_row(method, str(len(runs[method])), *cells, f"{steps:,}", f"{seconds:.0f}")
    for figure, panel in zip(figures, axes[0], strict=True):
        panel.set(xlabel="environment steps", ylabel=f"{figure} (median, range over seeds)")
        panel.grid(alpha=0.3)
    plot.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    plot.savefig(RESULTS / f"{folder}.png", dpi=110)
    Console(width=160).print(table)


def main() -> None:
    """Train what is named, or report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", choices=[[], *METHODS], help="what to train")
    parser.add_argument("--env", default="MuscleArmReach-v0")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0, 1, ... (default: 3)")
    parser.add_argument("--n-timesteps", type=int, default=None)
    parser.add_argument("--folder", default=None, help="of the results (default: the environment's name)")
    parser.add_argument("--report", nargs="*", metavar="FIGURE", help="success, effort, x_position, ...; default: success")
    args = parser.parse_args()
    folder = args.folder or args.env
    th.set_num_threads(1)
    for seed in range(args.seeds):
        for method in args.methods:
            run = train(method, args.env, seed, args.n_timesteps, folder)
            (RESULTS / folder).mkdir(parents=True, exist_ok=True)
            (RESULTS / folder / f"{method}_{seed}.json").write_text(json.dumps(run, indent=1) + "\n")
            print(method, seed, {key: round(value, 3) for key, value in run["final"].items()}, f"{run['seconds']:.0f} s")
    if args.report is not None:
        report(folder, args.report or ["success"])


if __name__ == "__main__":
    main()
