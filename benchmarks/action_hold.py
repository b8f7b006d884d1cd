"""
A small ablation of action hold: hold of 0, 0.05 and 0.1 s, time-aware against naive discounting.

    python -m benchmarks.action_hold [--env Hopper-v5] [--decisions 100000] [--seeds 3] [--output results.json]

Time-aware is HPPO: the reward discounted inside the hold, ``gamma ** n_held`` behind it. Naive is SB3's PPO on the same
wrapper: rewards summed up, one ``gamma`` for a decision of any length. Hyperparameters are those of ``hppo.yml`` for both.
Every run gets the same number of decisions, and so of updates; a longer hold therefore sees more simulated time. Without a
hold the two are the same algorithm, bit for bit, so that is run once. The figure is the task's own return of the final
policy, deterministic, over 20 episodes whose seeds no training used.
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch as th
import yaml
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

from sb3_hrl.hppo import HPPO
from sb3_hrl.registry import get_spec
from sb3_hrl.wrappers import ActionHold
from sb3_hrl.zoo.validation import normalise

HOLDS = (0.0, 0.05, 0.1)
N_EVAL_EPISODES = 20


class Run(NamedTuple):
    """One training run."""

    env_id: str
    hold_seconds: float
    is_time_aware: bool
    seed: int
    n_decisions: int


def train_and_evaluate(run: Run) -> dict[str, Any]:
    """
    :param run: what to train
    :return: the run, its final returns and how many steps its decisions lasted on average
    """
    th.set_num_threads(1)
    algorithm = HPPO if run.is_time_aware else PPO
    sections = yaml.safe_load(get_spec("hppo").hyperparams_path.read_text())
    kwargs = normalise(sections.get(run.env_id, sections["default"]), HPPO)
    n_envs = kwargs.pop("n_envs")
    for key in ("n_timesteps", "normalize"):
        kwargs.pop(key)

    hold: dict[str, Any] = {"wrapper_class": ActionHold, "wrapper_kwargs": {"hold_seconds": run.hold_seconds}}
    env = VecNormalize(make_vec_env(run.env_id, n_envs=n_envs, seed=run.seed, **hold), gamma=kwargs["gamma"])
    model = algorithm(env=env, seed=run.seed, device="cpu", **kwargs).learn(run.n_decisions)
    n_steps_held = env.get_attr("n_hold")[0](0)
    eval_env = VecNormalize(
        make_vec_env(run.env_id, n_envs=4, seed=100_000 + run.seed, **hold), training=False, norm_reward=False
    )
    eval_env.obs_rms = env.obs_rms
    returns, lengths = evaluate_policy(model, eval_env, N_EVAL_EPISODES, return_episode_rewards=True)
    return {**run._asdict(), "n_hold": n_steps_held, "return": float(np.mean(returns)), "length": float(np.mean(lengths))}


def main() -> None:
    """Train every run, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--env", default="Hopper-v5")
    parser.add_argument("--decisions", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", default=None, help="JSON file for every run's figures")
    args = parser.parse_args()
    settings = [(hold, is_time_aware) for hold in HOLDS for is_time_aware in (True, False) if hold or is_time_aware]
    runs = [Run(args.env, *setting, seed, args.decisions) for seed in range(args.seeds) for setting in settings]
    results = []
    with ProcessPoolExecutor(args.jobs) as pool:
        for result in pool.map(train_and_evaluate, runs):
            results.append(result)
            print(f"[{len(results)}/{len(runs)}] {result}", flush=True)
    if args.output:
        with open(args.output, "w") as file:
            json.dump(results, file, indent=1)
    print(f"\n{args.env}, {args.decisions} decisions, {args.seeds} seeds; mean return of {N_EVAL_EPISODES} episodes for each")
    print("| hold | steps | discounting | median over seeds | seeds |\n|---|---|---|---|---|")
    for hold, is_time_aware in settings:
        mine = [r for r in results if r["hold_seconds"] == hold and r["is_time_aware"] == is_time_aware]
        returns = [r["return"] for r in mine]
        name = "(the same)" if not hold else "time-aware" if is_time_aware else "naive"
        shown = ", ".join(f"{value:.0f}" for value in returns)
        print(f"| {hold} s | {mine[0]['n_hold']} | {name} | {np.median(returns):.0f} | {shown} |")


if __name__ == "__main__":
    main()
