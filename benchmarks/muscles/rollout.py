"""
How fast rollouts with muscles are, and how much of a native one is physics.

    python -m benchmarks.muscles.rollout [--rounds 7] [--only network_128_128 qp] [--json FILE]

For each low level, HPPO's rollout (``collect_rollouts``, all of it) over the same task three times: natively, in lock-step over
NativeVecEnv, and in lock-step over DummyVecEnv of the Python twin, which takes fewer steps, since it is slow. They run in turn,
so that whatever else the machine does meets all of them; times are medians of the rounds.

The share of MuJoCo: the native rollout once more with one thread, in turn with the same physics alone: MuJoCo is put into each
state that the environments were in, and steps for as many substeps as a step of the task has, with the state's activations.
CPU time of both. What else the rollout calls in MuJoCo (muscle curves, inertia, Cholesky, the quadratic programme) does not
count as physics here; that Python puts the states in adds one per cent to the physics. A sampling profiler says much the same:
``perf record -p PID`` beside a rollout, then ``perf report --sort dso``.
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

import sb3_hrl.envs  # noqa: F401  (registers the bodies)
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
    :param physics_cpu_us: of its physics alone
    :param mujoco_share: the one over the other
    """

    low_level: str
    native: float
    lockstep: float
    python_twin: float
    against_twin: float
    native_cpu_us: float
    physics_cpu_us: float
    mujoco_share: float


def record_states(trainer: Trainer, venv: NativeVecEnv, n_steps: int) -> np.ndarray:
    """
    :param trainer: whose policy acts
    :param venv: its environments, which are left in another state
    :param n_steps: of each environment
    :return: the states that they went through ``[T, E, n_state]``
    """
    obs = venv.reset()
    states = []
    for _ in range(n_steps):
        states.append([venv._engine.physics(index) for index in range(venv.num_envs)])
        obs, *_ = venv.step(trainer.model.predict(obs)[0])
    return np.array(states)


def physics_alone(env_id: str, states: np.ndarray) -> Callable[[], None]:
    """
    :param env_id: the task
    :param states: ``[T, E, n_state]``
    :return: what takes one step of the task's physics from each of them
    """
    env: Any = gym.make(env_id).unwrapped
    model, data, frame_skip = env.model, mujoco.MjData(env.model), env.frame_skip
    flat = states.reshape(-1, states.shape[-1])

    def run() -> None:
        for state in flat:
            mujoco.mj_setState(model, data, state, _STATE)
            mujoco.mj_step(model, data, frame_skip)

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
    venv = NativeVecEnv(setting.env_id, setting.n_envs, n_threads=1)
    native = Trainer(setting, NativeVecEnv(setting.env_id, setting.n_envs), HPPO, rollout="native", **muscles)
    one_thread = Trainer(setting, venv, HPPO, rollout="native", **muscles)
    lockstep = Trainer(setting, NativeVecEnv(setting.env_id, setting.n_envs), HPPO, rollout="lockstep", **muscles)
    twins = make_vec_env(setting.env_id, setting.n_envs, seed=0, vec_env_cls=DummyVecEnv)
    twin = Trainer(short, twins, HPPO, rollout="lockstep", **muscles)
    physics = physics_alone(setting.env_id, record_states(one_thread, venv, setting.n_steps))
    one_thread.model._last_obs = venv.reset()
    contestants: dict[str, tuple[Callable[[], Any], int]] = {
        "native": (native.collect, setting.n_total),
        "lockstep": (lockstep.collect, setting.n_total),
        "twin": (twin.collect, short.n_total),
        "one_thread": (one_thread.collect, setting.n_total),
        "physics": (physics, setting.n_total),
    }
    runs: dict[str, list[Run]] = {name: [] for name in contestants}
    for n_round in range(1 + n_rounds):
        for name, (run, n_total) in contestants.items():
            begin, cpu_begin = time.perf_counter(), time.process_time()
            run()
            seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
            if n_round > 0:
                runs[name].append(Run(seconds / n_total, cpu_seconds / n_total))
    for trainer in (native, one_thread, lockstep, twin):
        trainer.close()
    rate = {name: 1.0 / statistics.median(run.seconds for run in rows) for name, rows in runs.items()}
    # Both in one round, one after the other: what slows the one down slows the other down.
    pairs = list(zip(runs["one_thread"], runs["physics"], strict=True))
    return Row(
        low_level,
        rate["native"],
        rate["lockstep"],
        rate["twin"],
        rate["native"] / rate["twin"],
        1e6 * statistics.median(whole.cpu_seconds for whole, _ in pairs),
        1e6 * statistics.median(part.cpu_seconds for _, part in pairs),
        statistics.median(part.cpu_seconds / whole.cpu_seconds for whole, part in pairs),
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
    print(f"{setting.env_id}, {setting.n_envs} x {setting.n_steps}; steps/s, CPU us per step with one thread")
    print("low level             native  lock-step   twin  native/twin  native us  physics us  MuJoCo's share")
    rows = []
    for low_level in arguments.only:
        row = measure(low_level, setting, arguments.rounds)
        rows.append(row._asdict())
        print(
            f"{row.low_level:20} {row.native:7,.0f} {row.lockstep:10,.0f} {row.python_twin:6,.0f} {row.against_twin:12.1f}"
            f" {row.native_cpu_us:10.1f} {row.physics_cpu_us:11.1f} {row.mujoco_share:15.0%}",
            flush=True,
        )
    write_report(arguments.json, {"rows": rows, "settings": setting._asdict() | {"n_rounds": arguments.rounds}})


if __name__ == "__main__":
    main()
