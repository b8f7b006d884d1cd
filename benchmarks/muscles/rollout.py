"""
How fast rollouts with muscles are, and how much of a native one is physics.

    python -m benchmarks.muscles.rollout [--rounds 7] [--only network_128_128 qp] [--json FILE]

For each low level, HPPO's rollout (``collect_rollouts``, all of it) over the same task three times: natively, in lock-step
over NativeVecEnv, and in lock-step over DummyVecEnv of the Python twin, which takes fewer steps, since it is slow. They run in
turn, so that whatever else the machine does meets all of them; rates are medians of the rounds, ratios the medians of each
round's. The ratio of the CPU times, natively with one thread, does not depend on how many cores are free.

The share of MuJoCo: the native rollout once more with one thread, in turn with the same physics alone. The Python twin, which
has the same states to the last bit, writes down some thousand of them, each with the activations and torques of its substep;
MuJoCo is put into each and steps once, and what putting it there costs is measured likewise and taken off. CPU time of both.
What else the rollout calls in MuJoCo (muscle curves, inertia, Cholesky, the quadratic programme) does not count as physics.
``perf record -p PID`` beside a rollout, then ``perf report --sort dso``, is another way.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium as gym
import mujoco
import numpy as np
import torch as th
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_hrl.envs.muscle_env import MuscleEnv
from sb3_hrl.experiments.bench import Setting, Trainer, write_report
from sb3_hrl.hppo import HPPO
from sb3_hrl.vec_env import NativeVecEnv

PRETRAIN = {"n_pretrain": 4000, "pretrain_epochs": 10}
LOW_LEVELS: dict[str, dict[str, Any]] = {
    "network_128_128": {"hidden": (128, 128), **PRETRAIN},
    "network_256_256_256": {"hidden": (256, 256, 256), **PRETRAIN},
    "qp": {"low_level": "qp"},
    "torque": {"low_level": "torque"},
}
N_DUMMY_STEPS = 8
N_RECORDED_STEPS = 400
_STATE = mujoco.mjtState.mjSTATE_INTEGRATION


class Run(NamedTuple):
    """
    :param seconds: wall clock of one step of one environment, the median round
    :param cpu_seconds: the same in CPU time of the whole process
    """

    seconds: float
    cpu_seconds: float


class Row(NamedTuple):
    """
    Rates in steps of the task per second, all environments together.

    :param low_level: a key of ``LOW_LEVELS``
    :param native: natively, with as many threads as there are cores
    :param lockstep: over NativeVecEnv
    :param python_twin: over DummyVecEnv
    :param against_twin: native over python_twin
    :param native_cpu_us: CPU time of one step natively with one thread
    :param twin_cpu_us: over DummyVecEnv
    :param cpu_against_twin: the one over the other
    :param physics_cpu_us: CPU time of a step's physics alone
    :param mujoco_share: physics_cpu_us over native_cpu_us
    """

    low_level: str
    native: float
    lockstep: float
    python_twin: float
    against_twin: float
    native_cpu_us: float
    twin_cpu_us: float
    cpu_against_twin: float
    physics_cpu_us: float
    mujoco_share: float


def record_states(model: HPPO, env: MuscleEnv, n_steps: int) -> np.ndarray:
    """
    :param model: acts, and drives the muscles
    :param env: the Python twin
    :param n_steps: of the task
    :return: MuJoCo's state at every substep, with the activations and torques that were set for it ``[T * S, n_state]``
    """
    control: Any = env.control
    before_substep, states = control.before_substep, []

    def record(data: Any, substep: int) -> None:
        before_substep(data, substep)
        states.append(env.get_physics())

    control.before_substep = record
    obs, _ = env.reset(seed=0)
    for _ in range(n_steps):
        obs, _, is_terminated, is_truncated, _ = env.step(model.predict(obs)[0])
        if is_terminated or is_truncated:
            obs, _ = env.reset()
    return np.array(states)


def physics_alone(env: MuscleEnv, states: np.ndarray, n_substeps: int) -> Callable[[], None]:
    """
    :param env: the Python twin
    :param states: ``[T * S, n_state]``
    :param n_substeps: 1; or 0, for what it costs to put MuJoCo into the states
    :return: what does that from each of them
    """
    model, data = env.model, mujoco.MjData(env.model)

    def run() -> None:
        for state in states:
            mujoco.mj_setState(model, data, state, _STATE)
            mujoco.mj_step(model, data, n_substeps)

    return run


def measure(low_level: str, setting: Setting, n_rounds: int) -> Row:
    """
    :param low_level: a key of ``LOW_LEVELS``
    :param setting: what is measured
    :param n_rounds: how often, after one round that does not count
    :return: medians
    """
    short = setting._replace(n_steps=N_DUMMY_STEPS)
    muscles = {"muscle_kwargs": LOW_LEVELS[low_level], "log_std": -1.0}
    native = Trainer(setting, NativeVecEnv(setting.env_id, setting.n_envs), HPPO, rollout="native", **muscles)
    alone = NativeVecEnv(setting.env_id, setting.n_envs, n_threads=1)
    one_thread = Trainer(setting, alone, HPPO, rollout="native", **muscles)
    lockstep = Trainer(setting, NativeVecEnv(setting.env_id, setting.n_envs), HPPO, rollout="lockstep", **muscles)
    twins = make_vec_env(setting.env_id, setting.n_envs, seed=0, vec_env_cls=DummyVecEnv)
    twin = Trainer(short, twins, HPPO, rollout="lockstep", **muscles)
    env: Any = gym.make(setting.env_id).unwrapped
    model: Any = one_thread.model
    states = record_states(model, env, N_RECORDED_STEPS)
    contestants: dict[str, tuple[Callable[[], Any], int]] = {
        "native": (native.collect, setting.n_total),
        "lockstep": (lockstep.collect, setting.n_total),
        "twin": (twin.collect, short.n_total),
        "one_thread": (one_thread.collect, setting.n_total),
        "set_and_step": (physics_alone(env, states, 1), N_RECORDED_STEPS),
        "set": (physics_alone(env, states, 0), N_RECORDED_STEPS),
    }
    runs: dict[str, list[Run]] = {name: [] for name in contestants}
    for n_round in range(1 + n_rounds):
        for name, (run, n_total) in contestants.items():
            begin, cpu_begin = time.perf_counter(), time.process_time()
            run()
            seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
            if n_round > 0:
                runs[name].append(Run(seconds / n_total, cpu_seconds / n_total))
    runs["physics"] = [
        Run(*(whole - part for whole, part in zip(both, setting_only, strict=True)))
        for both, setting_only in zip(runs["set_and_step"], runs["set"], strict=True)
    ]
    for trainer in (native, one_thread, lockstep, twin):
        trainer.close()
    rate = {name: 1.0 / statistics.median(run.seconds for run in rows) for name, rows in runs.items()}
    cpu_us = {name: 1e6 * statistics.median(run.cpu_seconds for run in rows) for name, rows in runs.items()}

    def ratio(name: str, other: str, what: str) -> float:
        pairs = zip(runs[name], runs[other], strict=True)
        return statistics.median(getattr(one, what) / getattr(two, what) for one, two in pairs)

    return Row(
        low_level=low_level,
        native=rate["native"],
        lockstep=rate["lockstep"],
        python_twin=rate["twin"],
        against_twin=ratio("twin", "native", "seconds"),
        native_cpu_us=cpu_us["one_thread"],
        twin_cpu_us=cpu_us["twin"],
        cpu_against_twin=ratio("twin", "one_thread", "cpu_seconds"),
        physics_cpu_us=cpu_us["physics"],
        mujoco_share=ratio("physics", "one_thread", "cpu_seconds"),
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--env", default="MuscleWalkerWalk-v0")
    parser.add_argument("--n-envs", type=int, default=16)
    parser.add_argument("--n-steps", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=LOW_LEVELS, default=list(LOW_LEVELS))
    parser.add_argument("--json", help="where the figures go as well")
    arguments = parser.parse_args()
    th.set_num_threads(1)
    mujoco.set_mjcb_time(None)  # MuJoCo would time its stages in the physics alone; the native engine does not let it
    setting = Setting(arguments.env, arguments.n_envs, arguments.n_steps, (128, 128))
    print(f"{setting.env_id}, {setting.n_envs} x {setting.n_steps}")
    print("                      steps per second                        CPU us per step, one thread")
    print("low level             native  lock-step   twin  native/twin   native   twin  ratio  physics  MuJoCo's share")
    rows = []
    for low_level in arguments.only:
        row = measure(low_level, setting, arguments.rounds)
        rows.append(row._asdict())
        print(
            f"{row.low_level:20} {row.native:7,.0f} {row.lockstep:10,.0f} {row.python_twin:6,.0f} {row.against_twin:12.1f}"
            f" {row.native_cpu_us:8.0f} {row.twin_cpu_us:6.0f} {row.cpu_against_twin:6.1f} {row.physics_cpu_us:8.0f}"
            f" {row.mujoco_share:15.0%}",
            flush=True,
        )
    write_report(arguments.json, {"rows": rows, "settings": setting._asdict() | {"n_rounds": arguments.rounds}})


if __name__ == "__main__":
    main()
