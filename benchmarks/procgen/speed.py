"""
How fast training on Procgen is: SB3's PPO as it comes, and ours, side by side.

    python -m benchmarks.procgen.speed [--network nature|impala] [--precision bfloat16] [--rounds 7] [--only sb3_batch hppo]
        [--json FILE]

Every contestant runs whole iterations, a rollout and the learning from it, in turn with the others, so that whatever else the
machine does meets all of them. Rates are medians. Between the rounds two matrices are multiplied, once as torch does it (by
MKL, which leaves half of an AMD processor's vectors unused) and once as a convolution of single pixels (by oneDNN): the shares
are what a contestant's convolutions and matrix products alone (counted by torch) make of these rates. Memory is the largest of
all processes, what they share counted once, so that it says something with one contestant only.

SB3's documented way, ``ProcgenEnv`` of the package procgen, cannot work: its spaces are gym's. Its PPO therefore gets our
environments, singly in a DummyVecEnv (``sb3_dummy``) or as a batch (``sb3_batch``), and does the rest itself. Those with
actors (``--n-actors``) start them in every round, and count the iterations after the first ones, for which trajectories were
ready. IMPALA has the same minibatches, and one epoch. The precision is that of our networks; SB3 has no such option. Another
contestant is another function in ``CONTESTANTS``.

``--only impala rllib sample_factory`` has RLlib's IMPALA and Sample Factory's APPO beside ours: each in processes and in a
virtual environment of its own, for a minute in every round, with the same network and sizes (``benchmarks/procgen/peers``).
"""

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch as th
from rich.console import Console
from rich.progress import track
from rich.table import Table
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from sb3_hrl.actors import ActorVecEnv
from sb3_hrl.experiments.bench import Clock, Contestant, write_report
from sb3_hrl.experiments.machine import memory_bytes, own_peak_bytes
from sb3_hrl.hppo import HPPO
from sb3_hrl_plugins.impala import IMPALA
from sb3_hrl_plugins.procgen.vec_env import ProcgenVecEnv, procgen

EASY = {"distribution_mode": "easy"}
# Iterations with actors: the first ones find trajectories that were collected while nobody learned.
N_UNCOUNTED, N_COUNTED = 3, 3
# How matrices are multiplied, and what the table calls it.
PEAKS = {"mm": "torch.mm", "convolution": "oneDNN's product"}
POLICIES = {"nature": "NatureCnnPolicy", "impala": "ImpalaCnnPolicy"}


class Setting(NamedTuple):
    """What is measured; the defaults are those of the measurement that the goals come from."""

    game: str = "coinrun"
    network: str = "nature"
    n_envs: int = 32
    n_steps: int = 128
    batch_size: int = 1024
    n_epochs: int = 4
    n_actors: int = 2
    precision: str = "float32"

    @property
    def n_total(self) -> int:
        """Steps of one iteration."""
        return self.n_envs * self.n_steps


class PlainImpalaCnn(BaseFeaturesExtractor):
    """IMPALA's network as one writes it for SB3."""

    def __init__(self, observation_space: Any, features_dim: int = 256) -> None:
        super().__init__(observation_space, features_dim)
        n_in, layers = observation_space.shape[0], []
        for n_out in (16, 32, 32):
            layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.MaxPool2d(3, 2, 1), Residual(n_out), Residual(n_out)]
            n_in = n_out
        self.network = nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(32 * 8 * 8, features_dim), nn.ReLU())

    def forward(self, observations: th.Tensor) -> th.Tensor:
        return self.network(observations)


class Residual(nn.Module):
    """A residual block."""

    def __init__(self, n_channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(n_channels, n_channels, 3, padding=1) for _ in range(2))

    def forward(self, x: th.Tensor) -> th.Tensor:
        return x + self.second(F.relu(self.first(F.relu(x))))


def train(setting: Setting, model: OnPolicyAlgorithm) -> Contestant:
    """
    :param setting: what is measured
    :param model: any on-policy algorithm
    :return: a contestant that takes it through one iteration after the other
    """
    venv = model.get_env()
    assert venv is not None
    return Contestant(lambda: model.learn(setting.n_total, reset_num_timesteps=False), venv.close)


class MemoryClock(Clock):
    """Looks, before the iterations that count, how much memory all processes have."""

    most_bytes = 0

    def _on_rollout_end(self) -> None:
        super()._on_rollout_end()
        if len(self.times) < N_UNCOUNTED:
            MemoryClock.most_bytes = max(MemoryClock.most_bytes, memory_bytes())


def train_with_actors(setting: Setting, model: OnPolicyAlgorithm) -> Contestant:
    """
    :param setting: what is measured
    :param model: an algorithm with ``n_actors``
    :return: a contestant that says itself how long an iteration took
    """

    def run() -> float:
        clock = MemoryClock()
        model.learn((N_UNCOUNTED + N_COUNTED) * setting.n_total, clock, reset_num_timesteps=False)
        return (clock.times[-1] - clock.times[N_UNCOUNTED - 1]) / N_COUNTED

    venv = model.get_env()
    assert venv is not None
    return Contestant(run, venv.close)


def _ppo_kwargs(setting: Setting) -> dict[str, Any]:
    sizes = {"n_steps": setting.n_steps, "batch_size": setting.batch_size, "n_epochs": setting.n_epochs}
    return {**sizes, "gamma": 0.999, "ent_coef": 0.01, "device": "cpu", "seed": 0}


def _our_kwargs(setting: Setting) -> dict[str, Any]:
    return {**_ppo_kwargs(setting), "policy_kwargs": {"features_extractor_kwargs": {"precision": setting.precision}}}


def _sb3(setting: Setting, venv: VecEnv) -> Contestant:
    policy_kwargs: dict[str, Any] = {}
    if setting.network == "impala":
        policy_kwargs = {"features_extractor_class": PlainImpalaCnn, "net_arch": []}
    return train(setting, PPO("CnnPolicy", venv, policy_kwargs=policy_kwargs, **_ppo_kwargs(setting)))


def sb3_dummy(setting: Setting) -> Contestant:
    """SB3's PPO over single environments."""
    venv = make_vec_env(f"procgen-{setting.game}-v0", setting.n_envs, env_kwargs=EASY, vec_env_cls=DummyVecEnv)
    return _sb3(setting, venv)


def sb3_batch(setting: Setting) -> Contestant:
    """SB3's PPO over our batch."""
    return _sb3(setting, ProcgenVecEnv(setting.game, setting.n_envs, EASY))


def hppo(setting: Setting) -> Contestant:
    """Ours, sequential."""
    venv = ProcgenVecEnv(setting.game, setting.n_envs, EASY)
    return train(setting, HPPO(POLICIES[setting.network], venv, **_our_kwargs(setting)))


def _impala_kwargs(setting: Setting) -> dict[str, Any]:
    return {**_our_kwargs(setting), "n_epochs": 1}


def _actor_env(setting: Setting) -> VecEnv:
    vec_env_cls: Any = partial(ActorVecEnv, vec_env_wrapper=procgen)
    return make_vec_env(f"procgen-{setting.game}-v0", setting.n_envs, env_kwargs=EASY, vec_env_cls=vec_env_cls)


def hppo_parallel(setting: Setting) -> Contestant:
    """Ours, with actors that collect in turn with the learner."""
    kwargs = {**_our_kwargs(setting), "n_actors": setting.n_actors}
    return train_with_actors(setting, HPPO(POLICIES[setting.network], _actor_env(setting), **kwargs))


def impala(setting: Setting) -> Contestant:
    """IMPALA, sequential."""
    venv = ProcgenVecEnv(setting.game, setting.n_envs, EASY)
    return train(setting, IMPALA(POLICIES[setting.network], venv, **_impala_kwargs(setting)))


def impala_parallel(setting: Setting) -> Contestant:
    """IMPALA, with actors that collect while the learner learns."""
    kwargs = {**_impala_kwargs(setting), "n_actors": setting.n_actors}
    return train_with_actors(setting, IMPALA(POLICIES[setting.network], _actor_env(setting), **kwargs))


def peer(name: str, setting: Setting) -> Contestant:
    """
    :param name: what ``peers/run.sh`` calls it
    :param setting: what is measured
    :return: a contestant in another virtual environment
    """
    if (setting.network, setting.n_steps, setting.batch_size) != ("nature", 128, 1024):
        raise SystemExit(f"{name}: its script has the Nature network, 128 steps and minibatches of 1024")
    sizes = ["--game", setting.game, "--n-envs", str(setting.n_envs)]
    command = [str(Path(__file__).parent / "peers" / "run.sh"), name, *sizes, "--seconds", "60", "--warmup-seconds", "20"]

    def run() -> float:
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
        (report,) = (json.loads(line) for line in output.splitlines() if line.startswith('{"peer"'))
        return setting.n_total / report["steps_per_second"]

    return Contestant(run, lambda: None)


PEERS = ("rllib", "sample_factory")
CONTESTANTS: dict[str, Callable[[Setting], Contestant]] = {
    "sb3_dummy": sb3_dummy,
    "sb3_batch": sb3_batch,
    "hppo": hppo,
    "hppo_parallel": hppo_parallel,
    "impala": impala,
    "impala_parallel": impala_parallel,
    **{name: partial(peer, name) for name in PEERS},
}
# How often a sample goes through the network forwards, and how often forwards and backwards.
PASSES: dict[str, Callable[[Setting], tuple[int, int]]] = {
    name: (lambda setting: (1, setting.n_epochs)) if "ppo" in name or "sb3" in name else (lambda setting: (1, 1))
    for name in CONTESTANTS
}


def flop_per_step(setting: Setting, n_forward: int, n_train: int) -> float:
    """
    :param setting: what is measured
    :param n_forward: how often a sample goes through the network
    :param n_train: how often through it and back
    :return: floating-point operations of one step, those of convolutions and matrix products
    """
    venv = ProcgenVecEnv(setting.game, 1, EASY)
    policy = HPPO(POLICIES[setting.network], venv, n_steps=2, batch_size=2).policy
    obs, _ = policy.obs_to_tensor(venv.reset().transpose(0, 3, 1, 2))
    with FlopCounterMode(display=False) as forward, th.no_grad():
        policy.predict_values(obs)
    with FlopCounterMode(display=False) as both:
        values, log_prob, _ = policy.evaluate_actions(obs, th.zeros(1))
        (values.sum() + log_prob.sum()).backward()
    venv.close()
    return n_forward * forward.get_total_flops() + n_train * both.get_total_flops()


def multiply(way: str, size: int = 1024) -> float:
    """
    :param way: a key of ``PEAKS``
    :param size: of two matrices
    :return: floating-point operations per second of their product
    """
    left, right = th.rand(16, size, 1, size // 16), th.rand(size, size, 1, 1)
    rows = left.movedim(1, -1).reshape(size, size)
    left = left.contiguous(memory_format=th.channels_last)
    product = {"mm": lambda: rows @ right.view(size, size), "convolution": lambda: F.conv2d(left, right)}[way]
    product()
    begin = time.perf_counter()
    for _ in range(10):
        product()
    return 10 * 2 * size**3 / (time.perf_counter() - begin)


def measure(setting: Setting, names: list[str], n_rounds: int, n_warmup: int, json_file: str | None) -> None:
    """
    :param setting: what is measured
    :param names: of the contestants
    :param n_rounds: rounds that count
    :param n_warmup: rounds before them
    :param json_file: where the figures go as JSON, or None
    """
    contestants = {name: CONTESTANTS[name](setting) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    products: dict[str, list[float]] = {way: [] for way in PEAKS}
    for n_round in track(range(n_warmup + n_rounds), description="rounds", transient=True):
        for way, found in products.items():
            found.append(multiply(way))
        for name, contestant in contestants.items():
            begin = time.perf_counter()
            own_seconds = contestant.run()
            if n_round >= n_warmup:
                seconds[name].append(own_seconds if isinstance(own_seconds, float) else time.perf_counter() - begin)
    for contestant in contestants.values():
        contestant.close()
    peaks = {way: statistics.median(found) for way, found in products.items()}
    rates = {name: setting.n_total / statistics.median(times) for name, times in seconds.items()}
    flops = {name: rate * flop_per_step(setting, *PASSES[name](setting)) for name, rate in rates.items()}
    shares = {way: {name: flop / peak for name, flop in flops.items()} for way, peak in peaks.items()}
    gigabytes = max(own_peak_bytes(), MemoryClock.most_bytes) / 1e9
    sizes = f"{setting.n_envs} x {setting.n_steps}, {setting.n_epochs} epochs of {setting.batch_size}"
    title = f"{setting.game}, {setting.network}, {sizes}"
    table = Table(
        "contestant", "steps/s", f"against {names[0]}", *(f"share of {text}" for text in PEAKS.values()), title=title
    )
    for name, rate in rates.items():
        table.add_row(name, f"{rate:,.0f}", f"{rate / rates[names[0]]:.2f}", *(f"{shares[way][name]:.0%}" for way in PEAKS))
    console = Console(width=110)
    console.print(table)
    measured = ", ".join(f"{peaks[way] / 1e9:.0f} GFLOP/s by {text}" for way, text in PEAKS.items())
    console.print(f"matrix products: {measured}, with {th.get_num_threads()} threads; memory: {gigabytes:.1f} GB")
    report = {"sps": rates, "share_of_peak": shares, "peak_flops": peaks, "gigabytes": gigabytes, "seconds": seconds}
    write_report(json_file, report | {"settings": setting._asdict()})


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description="training on Procgen, side by side")
    defaults = Setting()
    parser.add_argument("--game", default=defaults.game)
    parser.add_argument("--network", default=defaults.network, choices=["nature", "impala"])
    for name in ("n_envs", "n_steps", "batch_size", "n_epochs", "n_actors"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=getattr(defaults, name))
    parser.add_argument("--precision", default=defaults.precision, choices=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument(
        "--only", nargs="+", choices=list(CONTESTANTS), default=[name for name in CONTESTANTS if name not in PEERS]
    )
    parser.add_argument("--json", default=None, metavar="FILE")
    args = parser.parse_args()
    setting = Setting(**{name: getattr(args, name) for name in Setting._fields})
    measure(setting, args.only, args.rounds, args.warmup, args.json)


if __name__ == "__main__":
    main()
