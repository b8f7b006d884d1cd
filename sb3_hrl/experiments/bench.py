"""``sb3-hrl bench``: how fast rollouts are, side by side, on this machine."""

import importlib.util
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from sb3_hrl import native
from sb3_hrl.experiments.machine import describe_machine
from sb3_hrl.hppo import HPPO
from sb3_hrl.vec_env import NativeVecEnv


class Contestant(NamedTuple):
    """
    :param run: does ``n_envs * n_steps`` steps
    :param close: frees what it holds
    """

    run: Callable[[], Any]
    close: Callable[[], Any]


class Clock(BaseCallback):
    """Notes when each rollout is complete."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.times.append(time.perf_counter())


class Setting(NamedTuple):
    """What is measured."""

    env_id: str
    n_envs: int
    n_steps: int
    net_arch: Sequence[int]
    shard_size: int | None = None
    batch_size: int = 512
    n_epochs: int = 10

    @property
    def n_total(self) -> int:
        """Steps of one rollout."""
        return self.n_envs * self.n_steps


class Effort(NamedTuple):
    """
    How long it is measured.

    :param n_rounds: rounds of each contestant that count
    :param n_warmup: rounds before them
    """

    n_rounds: int
    n_warmup: int


def bench_rollout(setting: Setting, effort: Effort, only: Sequence[str], json_file: str | None) -> int:
    """
    Measure one rollout of each contestant in turn, again and again, and print medians.

    :param setting: what is measured
    :param effort: how long
    :param only: names of contestants; all of them if empty
    :param json_file: where the figures go as JSON, or None
    :return: the exit code
    """
    has_envpool = importlib.util.find_spec("envpool") is not None
    names = only or [name for name in ROLLOUTS if name != "envpool" or has_envpool]
    return _compare(setting, effort, {name: ROLLOUTS[name](setting) for name in names}, json_file)


def bench_train(setting: Setting, effort: Effort, only: Sequence[str], json_file: str | None) -> int:
    """
    The same with whole iterations of training: a rollout and the learning from it.

    :param setting: what is measured
    :param effort: how long
    :param only: names of contestants; all of them if empty
    :param json_file: where the figures go as JSON, or None
    :return: the exit code
    """
    trainers = {name: TRAINERS[name](setting) for name in only or TRAINERS}
    contestants = {name: Contestant(trainer.iterate, trainer.close) for name, trainer in trainers.items()}
    return _compare(setting, effort, contestants, json_file)


def _compare(setting: Setting, effort: Effort, contestants: dict[str, Contestant], json_file: str | None) -> int:
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    n_rounds = effort.n_warmup + effort.n_rounds
    try:
        for n_round in track(range(n_rounds), description="rounds", transient=True):
            for name, contestant in contestants.items():
                begin = time.perf_counter()
                contestant.run()
                if n_round >= effort.n_warmup:
                    seconds[name].append(time.perf_counter() - begin)
    finally:
        for contestant in contestants.values():
            contestant.close()
    sps = {name: setting.n_total / statistics.median(times) for name, times in seconds.items()}
    _print_rates(setting, sps, seconds)
    write_report(json_file, {"sps": sps, "settings": setting._asdict() | effort._asdict(), "seconds": seconds})
    return 0


def write_report(json_file: str | None, report: dict[str, Any]) -> None:
    """
    :param json_file: where the figures go as JSON, with the machine and the versions beside them; None for nowhere
    :param report: the figures
    """
    if json_file is not None:
        Path(json_file).write_text(json.dumps(report | {"machine": describe_machine()}, indent=1) + "\n")


def get_console() -> Console:
    """
    :return: one that does not cut tables off where it writes into a file
    """
    console = Console()
    return console if console.is_terminal else Console(width=120)


def _print_rates(setting: Setting, sps: dict[str, float], seconds: dict[str, list[float]]) -> None:
    first = next(iter(sps))
    title = f"{setting.env_id}, {setting.n_envs} x {setting.n_steps}, policy {'x'.join(map(str, setting.net_arch))}"
    table = Table("contestant", "steps/s", f"against {first}", "rounds", title=title)
    for name, rate in sps.items():
        table.add_row(name, f"{rate:,.0f}", f"{rate / sps[first]:.2f}", str(len(seconds[name])))
    get_console().print(table)


# --- how it scales with the number of environments


class Scaling(NamedTuple):
    """One row of ``bench num-envs``; times in milliseconds, medians."""

    trainer: str
    n_envs: int
    batch: int
    rollout_ms: float
    handover_ms: float
    learning_ms: float
    sps: float
    speedup: float
    efficiency: float


# The fewest environments that come this near to the best rate are recommended: more of them mean fewer updates.
GOOD_ENOUGH = 0.97


def bench_num_envs(
    setting: Setting,
    n_envs_list: Sequence[int],
    n_rounds: Callable[[int], int],
    n_warmup: int,
    only: Sequence[str],
    json_file: str | None,
    plot_file: str | None,
) -> int:
    """
    Measure whole iterations for several numbers of environments, print a table and recommend one of them.

    :param setting: what is measured; its ``n_envs`` does not count
    :param n_envs_list: the numbers of environments
    :param n_rounds: for the steps of a rollout: how many rollouts count
    :param n_warmup: iterations that do not
    :param only: names of trainers; ``hppo`` if empty
    :param json_file: where the figures go as JSON, or None
    :param plot_file: where the plot goes, or None
    :return: the exit code
    """
    rows: list[Scaling] = []
    cases = [(name, n_envs) for name in only or ["hppo"] for n_envs in n_envs_list]
    for name, n_envs in track(cases, description="settings", transient=True):
        case = setting._replace(n_envs=n_envs)
        first = next((row for row in rows if row.trainer == name), None)
        rows.append(_measure_scaling(name, case, Effort(n_rounds(case.n_total), n_warmup), first))
    table = Table(
        "trainer", "n_envs", "batch", "rollout (ms)", "hand-over (ms)", "learning (ms)", "SPS", "speed-up", "efficiency",
        title=f"{setting.env_id}, rollouts of {setting.n_steps} steps",
    )  # fmt: skip
    for row in rows:
        times = f"{row.rollout_ms:.1f}", f"{row.handover_ms:.3f}", f"{row.learning_ms:.1f}"
        rates = f"{row.sps:,.0f}", f"{row.speedup:.2f}x", f"{row.efficiency:.1%}"
        table.add_row(row.trainer, str(row.n_envs), str(row.batch), *times, *rates)
    get_console().print(table)
    write_report(json_file, {"rows": [row._asdict() for row in rows], "settings": setting._asdict()})
    if plot_file is not None:
        _plot_scaling(rows, plot_file)
    best = max(rows, key=lambda row: row.sps)
    chosen = next(row for row in rows if row.trainer == best.trainer and row.sps >= GOOD_ENOUGH * best.sps)
    print(f"Recommended for {chosen.trainer}: n_envs: {chosen.n_envs} ({chosen.sps:,.0f} steps/s; best {best.sps:,.0f})")
    return 0


def _measure_scaling(name: str, setting: Setting, effort: Effort, first: Scaling | None) -> Scaling:
    trainer = TRAINERS[name](setting)
    times: list[tuple[float, float, float]] = []
    try:
        for n_round in range(effort.n_warmup + effort.n_rounds):
            begin = time.perf_counter()
            trainer.collect()
            middle = time.perf_counter()
            trainer.learn()
            handover = trainer.handover_ms()
            rollout = 1e3 * (middle - begin) - handover
            if n_round >= effort.n_warmup:
                times.append((rollout, handover, 1e3 * (time.perf_counter() - middle)))
    finally:
        trainer.close()
    rollout, handover, learning = (statistics.median(column) for column in zip(*times, strict=True))
    sps = 1e3 * setting.n_total / statistics.median(sum(row) for row in times)
    speedup = 1.0 if first is None else sps / first.sps
    efficiency = 1.0 if first is None else speedup / (setting.n_envs / first.n_envs)
    return Scaling(name, setting.n_envs, setting.n_total, rollout, handover, learning, sps, speedup, efficiency)


def _plot_scaling(rows: Sequence[Scaling], plot_file: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (rate, share) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for name in dict.fromkeys(row.trainer for row in rows):
        mine = [row for row in rows if row.trainer == name]
        n_envs = [row.n_envs for row in mine]
        rate.plot(n_envs, [row.sps for row in mine], marker="o", label=name)
        for part, style in (("rollout_ms", "-"), ("learning_ms", "--")):
            per_step = [1e3 * getattr(row, part) / row.batch for row in mine]
            share.plot(n_envs, per_step, style, marker="o", label=f"{name}, {part.removesuffix('_ms')}")
    ticks = sorted({row.n_envs for row in rows})
    for axes, label in ((rate, "steps per second, whole iterations"), (share, "microseconds per step")):
        axes.set(xscale="log", xlabel="environments", ylabel=label, ylim=(0, None))
        axes.set_xticks(ticks, [str(tick) for tick in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(plot_file, dpi=120)
    plt.close(figure)


# --- the contestants


class Trainer:
    """
    An algorithm with its environments, taken apart into rollout and learning.

    :param setting: what is measured
    :param venv: the environments
    :param algorithm: PPO or a subclass
    :param kwargs: further arguments of the algorithm
    """

    def __init__(self, setting: Setting, venv: VecEnv, algorithm: type[PPO] = PPO, **kwargs: Any) -> None:
        self.venv = venv
        batch_size = min(setting.batch_size, setting.n_total)
        self.model = algorithm(
            "MlpPolicy",
            venv,
            n_steps=setting.n_steps,
            batch_size=batch_size,
            n_epochs=setting.n_epochs,
            policy_kwargs={"net_arch": {"pi": list(setting.net_arch), "vf": list(setting.net_arch)}},
            device="cpu",
            seed=0,
            **kwargs,
        )
        _, self._callback = self.model._setup_learn(setting.n_total)

    def collect(self) -> None:
        """One rollout."""
        self.model.collect_rollouts(self.venv, self._callback, self.model.rollout_buffer, self.model.n_steps)

    def learn(self) -> None:
        """The learning from it."""
        self.model.train()

    def iterate(self) -> None:
        """Both."""
        self.collect()
        self.learn()

    def handover_ms(self) -> float:
        """How long the last rollout took to hand the weights to the workers; 0 where nothing is handed over."""
        return float(self.model.logger.name_to_value.get("time/handover_ms", 0.0))

    def close(self) -> None:
        """Close the environments."""
        self.venv.close()


def _sb3_dummy(setting: Setting) -> Trainer:
    return Trainer(setting, make_vec_env(setting.env_id, setting.n_envs, seed=0, vec_env_cls=DummyVecEnv))


def _sb3_subproc(setting: Setting) -> Trainer:
    return Trainer(setting, make_vec_env(setting.env_id, setting.n_envs, seed=0, vec_env_cls=SubprocVecEnv))


def _sb3_native(setting: Setting) -> Trainer:
    """SB3's own algorithm over our environments."""
    return Trainer(setting, NativeVecEnv(setting.env_id, setting.n_envs))


def _native_step(setting: Setting) -> Trainer:
    """Lock-step: SB3's loop over our environments, with a policy that computes natively."""
    return Trainer(setting, NativeVecEnv(setting.env_id, setting.n_envs), HPPO, rollout="lockstep")


def _native_rollout(setting: Setting, n_threads: int | None = None) -> Trainer:
    venv = NativeVecEnv(setting.env_id, setting.n_envs, n_threads=n_threads)
    return Trainer(setting, venv, HPPO, rollout="native", shard_size=setting.shard_size)


def _sb3_loop(setting: Setting) -> Trainer:
    """SB3's loop over environments that cost nothing: what any VecEnv has above it."""
    return Trainer(setting, IdleVecEnv(setting.env_id, setting.n_envs))


class IdleVecEnv(VecEnv):
    """
    Environments that stand still.

    :param env_id: whose spaces
    :param n_envs: how many
    """

    def __init__(self, env_id: str, n_envs: int) -> None:
        env = gym.make(env_id)
        super().__init__(n_envs, env.observation_space, env.action_space)
        env.close()
        obs: Any = np.zeros((n_envs, *(self.observation_space.shape or ())), self.observation_space.dtype)
        infos: list[dict[str, Any]] = [{} for _ in range(n_envs)]
        self._step = obs, np.zeros(n_envs, np.float32), np.zeros(n_envs, np.bool_), infos

    def reset(self) -> Any:
        return self._step[0]

    def step_async(self, actions: np.ndarray) -> None:
        pass

    def step_wait(self) -> Any:
        return self._step

    def close(self) -> None:
        pass

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        pass

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        return [None] * self.num_envs

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def _collecting(make: Callable[[Setting], Trainer]) -> Callable[[Setting], Contestant]:
    """Only the rollouts of a trainer."""

    def contestant(setting: Setting) -> Contestant:
        trainer = make(setting)
        return Contestant(trainer.collect, trainer.close)

    return contestant


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


ROLLOUTS: dict[str, Callable[[Setting], Contestant]] = {
    "sb3_dummy": _collecting(_sb3_dummy),
    "sb3_subproc": _collecting(_sb3_subproc),
    "sb3_loop": _collecting(_sb3_loop),
    "sb3_native": _collecting(_sb3_native),
    "native_step": _collecting(_native_step),
    "native_rollout": _collecting(_native_rollout),
    "native_one_thread": _collecting(partial(_native_rollout, n_threads=1)),
    "physics": _physics,
    "envpool": _envpool,
}
TRAINERS: dict[str, Callable[[Setting], Trainer]] = {
    "sb3_dummy": _sb3_dummy,
    "sb3_subproc": _sb3_subproc,
    "sb3_native": _sb3_native,
    "native_step": _native_step,
    "hppo": _native_rollout,
}
