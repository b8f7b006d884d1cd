"""
Whether long training grows: memory, threads and file descriptors at ten checkpoints.

    python -m benchmarks.soak [--steps 1000000]

Native rollouts of HalfCheetah-v5 with VecNormalize, episodes of 100 steps and updates; at every checkpoint all environments
are reset. The exit code is 1 if anything is larger at the end than it was after the first tenth. Memory may have grown by two
MiB, two bytes for each of a million steps: the allocator's own ups and downs are of that size.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import NamedTuple

from stable_baselines3.common.vec_env import VecNormalize

from sb3_hrl.hppo import HPPO
from sb3_hrl.vec_env import NativeVecEnv

N_CHECKPOINTS = 10
# Rounds of one rollout and a reset that come first: the allocator needs some of each before it has all that it takes.
N_WARMUP = 20
SLACK_KIB = 2048


class Usage(NamedTuple):
    """
    What this process holds.

    :param rss_kib: resident memory
    :param n_threads: threads
    :param n_fds: open file descriptors
    """

    rss_kib: int
    n_threads: int
    n_fds: int


def read_usage() -> Usage:
    """
    :return: what this process holds now
    """
    lines = (line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    status = {name: value.split() for name, value in lines}
    return Usage(int(status["VmRSS"][0]), int(status["Threads"][0]), len(os.listdir("/proc/self/fd")))


def has_grown(usages: list[Usage]) -> bool:
    """
    :param usages: at each checkpoint
    :return: whether the last one is larger than the first
    """
    first, last = usages[0], usages[-1]
    return last.rss_kib > first.rss_kib + SLACK_KIB or last.n_threads > first.n_threads or last.n_fds > first.n_fds


def soak(n_steps: int, n_envs: int = 16) -> list[Usage]:
    """
    :param n_steps: steps of all environments together
    :param n_envs: number of environments
    :return: what the process held at each checkpoint
    """
    venv = VecNormalize(NativeVecEnv("HalfCheetah-v5", n_envs=n_envs, max_episode_steps=100))
    model = HPPO("MlpPolicy", venv, n_steps=64, batch_size=512, n_epochs=1, rollout="native", device="cpu", seed=0)
    for _ in range(N_WARMUP):
        model.learn(1)
        model._last_obs = venv.reset()
    usages = []
    for tenth in range(N_CHECKPOINTS):
        model.learn(n_steps // N_CHECKPOINTS, reset_num_timesteps=False)
        model._last_obs = venv.reset()
        usages.append(read_usage())
        usage = usages[-1]
        print(
            f"{tenth + 1:2d}/{N_CHECKPOINTS}: {model.num_timesteps} steps, {usage.rss_kib / 1024:.1f} MiB, "
            f"{usage.n_threads} threads, {usage.n_fds} file descriptors",
            flush=True,
        )
    venv.close()
    return usages


def main() -> int:
    """
    :return: the exit code
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps of all environments together")
    is_worse = has_grown(soak(parser.parse_args().steps))
    print("it has grown" if is_worse else "it has not grown")
    return int(is_worse)


if __name__ == "__main__":
    sys.exit(main())
