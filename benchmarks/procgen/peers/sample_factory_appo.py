"""
Sample Factory's APPO on Procgen: its samples per second, in an environment of its own (``benchmarks/procgen/peers/run.sh
sample_factory``).

Its network for Atari, which is Nature's, 32 environments in two workers, rollouts of 128 steps, minibatches of 1024, one
epoch.
"""

import json
import sys
import time
from typing import Any

import sample_factory
from game import ProcgenGame
from sample_factory.cfg.arguments import parse_full_cfg, parse_sf_args
from sample_factory.envs.env_utils import register_env
from sample_factory.train import run_rl

N_STEPS = 200_000


def make_env(full_env_name: str, cfg: Any = None, env_config: Any = None, render_mode: str | None = None) -> ProcgenGame:
    """As Sample Factory calls it."""
    return ProcgenGame(full_env_name.removeprefix("procgen_"), is_channels_first=True)


def main() -> None:
    """Train, and say how fast it was, with all that happens at the beginning."""
    register_env("procgen_coinrun", make_env)
    arguments = [
        "--env=procgen_coinrun",
        "--experiment=peer",
        "--device=cpu",
        f"--train_for_env_steps={N_STEPS}",
        "--num_workers=2",
        "--num_envs_per_worker=16",
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
        *sys.argv[1:],
    ]
    parser, _ = parse_sf_args(arguments)
    cfg = parse_full_cfg(parser, arguments)
    begin = time.perf_counter()
    run_rl(cfg)
    rate = cfg.train_for_env_steps / (time.perf_counter() - begin)
    version = getattr(sample_factory, "__version__", "?")
    print(json.dumps({"peer": "sample_factory_appo", "version": version, "steps_per_second": rate}))


if __name__ == "__main__":
    main()
