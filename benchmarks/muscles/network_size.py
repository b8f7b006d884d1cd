"""
What a muscle network's size costs and gains.

    python -m benchmarks.muscles.network_size [MODEL.xml] [--stiffness 300] [--seeds 3]

Fits networks of several sizes to the same random poses of a body, and prints for each, on poses that it has not seen: the root
mean square error of the torques, how much of it the exact quadratic programme would spare, the mean squared activation, the
seconds of the fit, and the microseconds of one native inference (the fastest of many short runs, in one thread).
"""

import argparse
import time
from pathlib import Path

import mujoco
import numpy as np
import torch as th

import sb3_hrl
from sb3_hrl import native
from sb3_hrl.muscle import MuscleInterface, MuscleLearner, MuscleNetwork, Muscles, MuscleSettings, pretrain, random_tuples

WALKER = Path(sb3_hrl.__file__).parent / "envs/assets/muscle_walker.xml"
SIZES: tuple[tuple[int, ...], ...] = ((32, 32), (64, 64), (128,), (128, 128), (256, 256), (256, 256, 256))
N_FIT, N_HELD_OUT = 20_000, 2_000


def inference_microseconds(muscles: Muscles, tuples: np.ndarray, n_runs: int = 300, n_rows: int = 50) -> float:
    """
    :param muscles: a network
    :param tuples: ``[N, P + D]``, N at least ``n_rows``
    :param n_runs: the fastest of so many counts
    :param n_rows: inferences of one run: few, so that another process disturbs few of them
    :return: microseconds of one inference
    """
    levels = [list(level) for level in muscles.levels]
    network = native.load().MuscleNetwork(levels, muscles.packed_scale, muscles.torque_scale)
    rows = tuples[:n_rows].astype(np.float64)
    packed, torque = (np.ascontiguousarray(part) for part in np.split(rows, [network.n_packed], axis=1))
    weight, activation = np.ones(n_rows), np.empty((n_rows, network.n_muscles))
    fastest = np.inf
    for _ in range(n_runs):
        start = time.perf_counter()
        network.activate(packed, torque, weight, activation)
        fastest = min(fastest, time.perf_counter() - start)
    return 1e6 * fastest / n_rows


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("model", nargs="?", type=Path, default=WALKER)
    parser.add_argument("--stiffness", type=float, default=300.0)
    parser.add_argument("--scale", type=float, default=0.5)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    th.set_num_threads(1)
    interface = MuscleInterface(mujoco.MjModel.from_xml_path(str(arguments.model)))
    settings = MuscleSettings(stiffness=arguments.stiffness, scale=arguments.scale)
    start = time.perf_counter()
    tuples = random_tuples(interface, settings, N_FIT)
    held_out = random_tuples(interface, settings, N_HELD_OUT, seed=1)
    print(f"{interface.n_muscles} muscles, {interface.n_coords} coordinates, {interface.n_packed} torques per activation")
    print(f"{N_FIT + N_HELD_OUT} random tuples in {time.perf_counter() - start:.1f} s")
    print("hidden            RMSE Nm   over QP Nm   mean a^2   fit s   us per inference")
    for hidden in SIZES:
        rows = []
        for seed in range(arguments.seeds):
            network = MuscleNetwork.for_interface(interface, hidden, seed=seed)
            learner = MuscleLearner(network, interface.pattern, n_qp_samples=500, seed=seed)
            start = time.perf_counter()
            pretrain(learner, tuples)
            seconds = time.perf_counter() - start
            metrics = learner.evaluate(held_out)
            rows.append((metrics.torque_rmse, metrics.excess_over_qp, metrics.effort, seconds))
        rmse, excess, effort, seconds = np.mean(rows, axis=0)
        microseconds = inference_microseconds(network.to_muscles(), tuples)
        print(f"{hidden!s:16} {rmse:8.2f} {excess:12.2f} {effort:10.3f} {seconds:7.1f} {microseconds:18.2f}", flush=True)


if __name__ == "__main__":
    main()
