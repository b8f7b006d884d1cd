"""``sb3-hrl bench``: how fast rollouts are, side by side, on this machine."""

import importlib.util
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch as th
from rich.console import Console
from rich.table import Table
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from sb3_hrl import native
from sb3_hrl.hppo import HPPO
from sb3_hrl.vec_env import NativeVecEnv


class Contestant(NamedTuple):
    """
    :param run: does ``n_envs * n_steps`` steps
    :param close: frees what it holds
    """

    run: Callable[[], Any]
    close: Callable[[], Any]


class Setting(NamedTuple):
    """What is measured."""

    env_id: str
    n_envs: int
    n_steps: int
    net_arch: Sequence[int]
    n_rounds: int


def bench_rollout(setting: Setting, only: Sequence[str], n_warmup: int, json_file: str | None) -> int:
    """
    Measure one rollout of each contestant in turn, again and again, and print medians.

    :param setting: what is measured
    :param only: names of contestants; all of them if empty
    :param n_warmup: rounds that do not count
    :param json_file: where the figures go as JSON, or None
    :return: the exit code
    """
    has_envpool = importlib.util.find_spec("envpool") is not None
    names = only or [name for name in CONTESTANTS if name != "envpool" or has_envpool]
    contestants = {name: CONTESTANTS[name](setting) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    try:
        for n_round in range(n_warmup + setting.n_rounds):
            for name, contestant in contestants.items():
                begin = time.perf_counter()
                contestant.run()
                if n_round >= n_warmup:
                    seconds[name].append(time.perf_counter() - begin)
    finally:
        for contestant in contestants.values():
            contestant.close()
    n_total = setting.n_envs * setting.n_steps
    sps = {name: n_total / statistics.median(times) for name, times in seconds.items()}
    _print_rates(setting, sps, seconds)
    if json_file is not None:
        report = {"sps": sps, "settings": setting._asdict(), "seconds": seconds, "machine": _machine()}
        Path(json_file).write_text(json.dumps(report, indent=1) + "\n")
    return 0


def _print_rates(setting: Setting, sps: dict[str, float], seconds: dict[str, list[float]]) -> None:
    table = Table(
        "contestant", "steps/s", "against sb3_dummy", "rounds", title=f"{setting.env_id}, {setting.n_envs} x {setting.n_steps}"
    )
    for name, rate in sps.items():
        ratio = f"{rate / sps['sb3_dummy']:.2f}" if "sb3_dummy" in sps else ""
        table.add_row(name, f"{rate:,.0f}", ratio, str(len(seconds[name])))
    Console().print(table)


def _machine() -> dict[str, Any]:
    packages = ("torch", "mujoco", "stable-baselines3", "gymnasium", "numpy", "sb3-hrl")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": platform.processor() or platform.machine(),
        "available_cpus": native.load().available_cpus(),
        "torch_threads": th.get_num_threads(),
        "load_average": os.getloadavg()[0],
        "versions": {name: version(name) for name in packages},
    }


# --- the contestants


def _collector(setting: Setting, venv: VecEnv, algorithm: type[PPO] = PPO, **kwargs: Any) -> Contestant:
    """The rollout of an algorithm over a VecEnv; by default SB3's own."""
    policy_kwargs = {"net_arch": {"pi": list(setting.net_arch), "vf": list(setting.net_arch)}}
    kwargs |= {"n_steps": setting.n_steps, "batch_size": setting.n_envs, "policy_kwargs": policy_kwargs, "device": "cpu"}
    model = algorithm("MlpPolicy", venv, **kwargs)
    _, callback = model._setup_learn(setting.n_envs * setting.n_steps)

    def run() -> None:
        model.collect_rollouts(venv, callback, model.rollout_buffer, setting.n_steps)

    return Contestant(run, venv.close)


def _sb3_dummy(setting: Setting) -> Contestant:
    return _collector(setting, make_vec_env(setting.env_id, setting.n_envs, seed=0, vec_env_cls=DummyVecEnv))


def _sb3_subproc(setting: Setting) -> Contestant:
    return _collector(setting, make_vec_env(setting.env_id, setting.n_envs, seed=0, vec_env_cls=SubprocVecEnv))


def _native_step(setting: Setting) -> Contestant:
    return _collector(setting, NativeVecEnv(setting.env_id, setting.n_envs))


def _native_rollout(setting: Setting) -> Contestant:
    return _collector(setting, NativeVecEnv(setting.env_id, setting.n_envs), HPPO, rollout="native")


def _physics(setting: Setting) -> Contestant:
    """MuJoCo's own batch, the same physics with no policy, no observation and no reward: the ceiling."""
    from mujoco.batch import Batch

    env: Any = gym.make(setting.env_id).unwrapped
    batch = Batch(env.model, setting.n_envs, native.load().available_cpus(), persistent=True)
    batch.bind("qpos")[...] = env.init_qpos
    ctrl = batch.bind("ctrl")
    rng = np.random.default_rng(0)
    noise = rng.uniform(env.action_space.low, env.action_space.high, (setting.n_steps, *ctrl.shape))

    def run() -> None:
        for actions in noise:
            ctrl[...] = actions
            batch.step(nstep=env.frame_skip)

    return Contestant(run, env.close)


def _envpool(setting: Setting) -> Contestant:
    """EnvPool's stepping alone, with random actions."""
    import envpool

    env = envpool.make_gymnasium(setting.env_id, num_envs=setting.n_envs, num_threads=native.load().available_cpus())
    env.reset()
    space = env.action_space
    rng = np.random.default_rng(0)
    noise = rng.uniform(space.low, space.high, (setting.n_steps, setting.n_envs, *space.shape)).astype(np.float32)

    def run() -> None:
        for actions in noise:
            env.step(actions)

    return Contestant(run, env.close)


CONTESTANTS: dict[str, Callable[[Setting], Contestant]] = {
    "sb3_dummy": _sb3_dummy,
    "sb3_subproc": _sb3_subproc,
    "native_step": _native_step,
    "native_rollout": _native_rollout,
    "physics": _physics,
    "envpool": _envpool,
}
