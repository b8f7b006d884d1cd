"""
Scores on Procgen beside those of OpenAI's own runs of PPO.

    python -m benchmarks.procgen.score fruitbot [--algo hppo|impala] [--n-timesteps 1e6] [--minutes 75] [--seed 0]
        [--precision bfloat16] [--folder DIR] [--json FILE]

Trains ``hppo`` or ``impala`` with its hyperparameters for the game (``sb3_hrl/hyperparams``), on all levels in mode easy,
and compares the mean return of the last hundred training episodes, averaged over the ten updates of PPO before each mark, with
the same figure of OpenAI's three runs (train-procgen, ``results/easy-all-run*``, procgen 0.9.2). This takes an hour or more:
with a folder, a run that was ended, by whatever, goes on where its last checkpoint is when the same command is given again.
``python -m benchmarks.procgen.beside FILE FILE`` sets two of the files side by side, by steps and by time.

Time is the processor's: on one core (``taskset -c 0``) that is the clock on the wall if the core does nothing else, and much
the same number if it does. ``--minutes`` ends a run before ``--n-timesteps``, up to which the learning rate falls.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from rl_zoo3.utils import SimpleLinearSchedule
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import safe_mean
from stable_baselines3.common.vec_env import VecNormalize

from benchmarks.procgen.beside import Point, mean_before
from sb3_hrl.checkpoint import Checkpointer
from sb3_hrl.checkpoint.archive import newest
from sb3_hrl.experiments.bench import write_report
from sb3_hrl.registry import get_spec
from sb3_hrl.zoo.validation import normalise
from sb3_hrl_plugins.procgen import GAMES
from sb3_hrl_plugins.procgen.vec_env import ProcgenVecEnv

# Steps of one update of PPO's, and of those that are averaged.
N_UPDATE = 64 * 256
WINDOW = 10 * N_UPDATE
# Steps between two checkpoints.
SAVE_FREQ = 50_000
# Steps -> mean and standard deviation of three runs.
OPENAI: dict[str, dict[int, tuple[float, float]]] = {
    "coinrun": {500_000: (6.01, 0.17), 1_000_000: (6.79, 0.10), 2_000_000: (8.32, 0.21), 5_000_000: (6.84, 1.50)},
    "starpilot": {500_000: (4.01, 0.33), 1_000_000: (7.98, 0.42), 2_000_000: (15.64, 1.64), 5_000_000: (26.20, 1.85)},
    "fruitbot": {500_000: (0.47, 0.07), 1_000_000: (9.85, 1.43), 2_000_000: (20.39, 1.08), 5_000_000: (25.88, 1.06)},
    "jumper": {500_000: (5.61, 0.12), 1_000_000: (6.12, 0.18), 2_000_000: (6.14, 0.43), 5_000_000: (6.68, 0.49)},
    "bossfight": {500_000: (0.38, 0.09), 1_000_000: (0.89, 0.22), 2_000_000: (5.10, 1.13), 5_000_000: (7.61, 0.32)},
}


class Curve(BaseCallback):
    """
    Notes a point after every rollout.

    :param path: a file of the points, one a line, or None; what it holds up to the model's step is kept
    :param minutes: of processor time, after which training ends
    """

    def __init__(self, path: Path | None, minutes: float) -> None:
        super().__init__()
        self.path, self.minutes = path, minutes
        self.points: list[Point] = []
        self._begin = 0.0

    def _on_training_start(self) -> None:
        if self.path is not None and self.path.exists():
            points = [Point(*json.loads(line)) for line in self.path.read_text().splitlines()]
            self.points = [point for point in points if point.n_timesteps <= self.model.num_timesteps]
            self.path.write_text("".join(f"{json.dumps(point)}\n" for point in self.points))
        self._begin = time.process_time() - (self.points[-1].seconds if self.points else 0.0)

    def _on_step(self) -> bool:
        return not self.points or self.points[-1].seconds < 60 * self.minutes

    def _on_rollout_end(self) -> None:
        returns = [episode["r"] for episode in self.model.ep_info_buffer or ()]
        self.points.append(Point(self.num_timesteps, time.process_time() - self._begin, float(safe_mean(returns))))
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(f"{json.dumps(self.points[-1])}\n")


def make_model(algo: str, game: str, seed: int, precision: str, folder: Path | None) -> OnPolicyAlgorithm:
    """
    :param algo: ``hppo`` or ``impala``
    :param game: which one
    :param seed: of everything
    :param precision: of the network's products
    :param folder: of checkpoints, or None
    :return: the algorithm with its hyperparameters for the game, on all levels; that of the newest checkpoint if there is one
    """
    spec = get_spec(algo)
    algorithm = spec.load("algorithm")
    section: dict[str, Any] = normalise(yaml.safe_load(spec.hyperparams_path.read_text())[f"procgen-{game}-v0"], algorithm)
    for key in ("env_kwargs", "eval_env_kwargs", "vec_env_wrapper", "n_timesteps"):
        section.pop(key, None)
    if isinstance(section["learning_rate"], str):
        section["learning_rate"] = SimpleLinearSchedule(float(section["learning_rate"].removeprefix("lin_")))
    venv = ProcgenVecEnv(game, section.pop("n_envs"), {"distribution_mode": "easy"})
    venv.seed(seed)
    normalized = VecNormalize(venv, **{"gamma": section["gamma"], **section.pop("normalize")})
    checkpoint = newest(folder) if folder is not None and folder.is_dir() else None
    if checkpoint is not None:
        return algorithm.load(checkpoint, env=normalized)
    policy_kwargs = {"features_extractor_kwargs": {"precision": precision}}
    return algorithm(env=normalized, seed=seed, device="cpu", policy_kwargs=policy_kwargs, **section)


def compare(game: str, points: list[Point]) -> list[dict[str, float]]:
    """
    :param game: which one
    :param points: of the training
    :return: a row for each of OpenAI's marks that was reached
    """
    rows = []
    for mark, (mean, deviation) in OPENAI.get(game, {}).items():
        if points and points[-1].n_timesteps >= mark * 0.98:
            ours = mean_before(points, "n_timesteps", mark, WINDOW)
            rows.append({"steps": mark, "ours": ours, "openai": mean, "deviation": deviation, "z": (ours - mean) / deviation})
    return rows


def main() -> None:
    """Train and compare."""
    parser = argparse.ArgumentParser(description="scores on Procgen beside OpenAI's")
    parser.add_argument("game", choices=GAMES)
    parser.add_argument("--algo", choices=["hppo", "impala"], default="hppo")
    parser.add_argument("--n-timesteps", type=float, default=1e6)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--folder", type=Path, default=None, metavar="DIR")
    parser.add_argument("--json", default=None, metavar="FILE")
    args = parser.parse_args()
    model = make_model(args.algo, args.game, args.seed, args.precision, args.folder)
    curve = Curve(args.folder and args.folder / "curve.jsonl", args.minutes)
    callbacks: list[BaseCallback] = [curve]
    if args.folder is not None:
        args.folder.mkdir(parents=True, exist_ok=True)
        callbacks.append(Checkpointer(args.folder, SAVE_FREQ, keep_last=2))
    n_left = int(args.n_timesteps) - model.num_timesteps
    model.learn(n_left, CallbackList(callbacks), reset_num_timesteps=False, progress_bar=True)
    rows = compare(args.game, curve.points)
    table = Table("steps", "ours", "OpenAI's", "in standard deviations", title=f"{args.algo}, {args.game}, easy, all levels")
    for row in rows:
        table.add_row(
            f"{row['steps']:,}", f"{row['ours']:.2f}", f"{row['openai']:.2f} +- {row['deviation']:.2f}", f"{row['z']:+.1f}"
        )
    Console(width=100).print(table)
    last = curve.points[-1]
    rate = last.n_timesteps / last.seconds
    print(f"{last.n_timesteps:,} steps in {last.seconds:,.0f} s: {rate:,.0f} steps/s; the last return: {last.mean_return:.2f}")
    settings = {"algo": args.algo, "game": args.game, "seed": args.seed, "precision": args.precision}
    # One for each update of PPO's: IMPALA has sixteen times as many. None before the first episode ended.
    ended = [point for point in curve.points if not math.isnan(point.mean_return)]
    kept = {point.n_timesteps // N_UPDATE: point for point in reversed(ended)}
    points = [point._asdict() for point in reversed(kept.values())]
    write_report(args.json, {**settings, "rows": rows, "curve": points})


if __name__ == "__main__":
    main()
