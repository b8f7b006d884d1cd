"""
Sample Factory's APPO on Procgen: its samples per second, in an environment of its own (``benchmarks/procgen/peers/run.sh
sample_factory``).

Its network for Atari, which is Nature's, 32 environments in two workers, rollouts of 128 steps, minibatches of 1024, one
epoch.
"""

import json
import tempfile
import time
from importlib.metadata import version
from typing import Any

from game import ProcgenGame, read_arguments
from sample_factory.algo.runners.runner import AlgoObserver, Runner
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import make_runner


def make_env(full_env_name: str, cfg: Any = None, env_config: Any = None, render_mode: str | None = None) -> ProcgenGame:
    """As Sample Factory calls it."""
    return ProcgenGame(full_env_name.removeprefix("procgen_"), is_channels_first=True)


class Clock(AlgoObserver):
    """
    Notes the steps that were learned from, and when, and ends the training.

    :param n_seconds: when to end it
    """

    def __init__(self, n_seconds: float) -> None:
        self.end = time.perf_counter() + n_seconds
        self.points: list[tuple[float, int]] = []

    def on_training_step(self, runner: Runner, training_iteration_since_resume: int) -> None:
        """After an update."""
        self.points.append((time.perf_counter(), sum(runner.env_steps.values())))
        if self.points[-1][0] > self.end:
            runner.cfg.train_for_env_steps = 0  # its option train_for_seconds has no effect


def main() -> None:
    """Train for a while, and say how fast it was."""
    args = read_arguments()
    register_env(f"procgen_{args.game}", make_env)
    arguments = [
        f"--env=procgen_{args.game}",
        "--experiment=peer",
        "--device=cpu",
        f"--train_dir={tempfile.mkdtemp()}",
        "--train_for_env_steps=1000000000",
        f"--num_workers={args.n_runners}",
        f"--num_envs_per_worker={args.n_envs // args.n_runners}",
        "--worker_num_splits=2",
        "--rollout=128",
        "--recurrence=1",
        "--use_rnn=False",
        "--batch_size=1024",
        "--num_epochs=1",
        "--gamma=0.999",
        "--encoder_conv_architecture=convnet_atari",
        "--obs_scale=255.0",
        "--env_frameskip=1",
        "--normalize_input=False",
    ]
    sf_parser, _ = parse_sf_args(arguments)
    _, runner = make_runner(parse_full_cfg(sf_parser, arguments))
    clock = Clock(args.warmup_seconds + args.seconds)
    runner.register_observer(clock)
    begin = time.perf_counter()
    runner.init()
    runner.run()
    counted = [point for point in clock.points if point[0] - begin > args.warmup_seconds]
    (first, n_first), (last, n_last) = counted[0], counted[-1]
    rate = (n_last - n_first) / (last - first)
    print(json.dumps({"peer": "sample_factory_appo", "version": version("sample-factory"), "steps_per_second": rate}))


if __name__ == "__main__":
    main()
