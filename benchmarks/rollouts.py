"""
Every figure of docs/native_vec_env.md: ``python -m benchmarks.rollouts`` (about eight minutes on a quiet machine).

Each case is one call of ``sb3-hrl bench`` in a process of its own, with its own number of torch's threads, since SB3 over
DummyVecEnv is fastest now with one and now with two.
"""

import os
import subprocess
import sys
from pathlib import Path

from rich.progress import track

RESULTS = Path(__file__).parent / "results"
HALF_CHEETAH = ["rollout", "--env", "HalfCheetah-v5", "--rounds", "15"]
# File -> torch's threads, and the arguments of ``sb3-hrl bench``.
CASES: dict[str, tuple[int, list[str]]] = {
    "rollout_half_cheetah_torch_threads_1": (1, HALF_CHEETAH),
    "rollout_half_cheetah_torch_threads_2": (2, HALF_CHEETAH),
    "rollout_half_cheetah_3x512": (1, [*HALF_CHEETAH, "--net-arch", "512", "512", "512"]),
    "rollout_half_cheetah_3x512_torch_threads_2": (2, [*HALF_CHEETAH, "--net-arch", "512", "512", "512"]),
    "rollout_hopper": (1, ["rollout", "--env", "Hopper-v5", "--rounds", "15"]),
    "rollout_humanoid": (1, ["rollout", "--env", "Humanoid-v5", "--rounds", "7"]),
    "train_half_cheetah_torch_threads_1": (1, ["train", "--rounds", "11", "--only", "sb3_dummy", "native_step", "hppo"]),
    "train_half_cheetah_torch_threads_2": (2, ["train", "--rounds", "11", "--only", "sb3_dummy", "native_step", "hppo"]),
    "num_envs_half_cheetah": (
        1,
        ["num-envs", "--rounds", "5", "--n-envs-list", *(str(2**power) for power in range(1, 11))],
    ),
}


def main() -> None:
    """Run the cases that are named on the command line, or all of them."""
    for name in track(sys.argv[1:] or list(CASES)):
        n_threads, arguments = CASES[name]
        command = [sys.executable, "-m", "sb3_hrl.experiments.cli", "bench", *arguments, "--json", f"{RESULTS / name}.json"]
        if arguments[0] == "num-envs":
            command += ["--plot", f"{RESULTS / name}.png"]
        env = os.environ | {"OMP_NUM_THREADS": str(n_threads)}
        subprocess.run(command, env=env, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
