"""``sb3-hrl bench preset``: measure this machine, and write a preset for it."""

import inspect
import json
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch as th
import yaml
from rich.progress import track
from rich.table import Table
from stable_baselines3.common.env_util import make_vec_env

from sb3_hrl.actors import ActorVecEnv, check_shares
from sb3_hrl.experiments.bench import GOOD_ENOUGH, Clock, describe_machine, get_console
from sb3_hrl.extras import check_extra
from sb3_hrl.registry import VEC_ENVS, get_spec, import_dotted, register_envs, resolve, suggest
from sb3_hrl.zoo.validation import (
    CHECKPOINT_KEYS,
    HYPERPARAMS,
    ZOO_KEYS,
    check_config,
    check_further,
    evaluate,
    find_config,
    normalise,
    read_section,
)

# Keys that cost time, which is not measured.
_NOT_MEASURED = ("env_wrapper", "frame_stack", "callback")
# Numbers of environments, and of an actor's.
_N_ENVS, _N_ENVS_EACH = (16, 32, 64, 128), (4, 8, 16, 32)
# Iterations before those that count: actors find time to collect while nobody learns yet.
_N_UNCOUNTED = 2


class Rate(NamedTuple):
    """
    :param n_envs: number of environments
    :param n_threads: threads of torch
    :param sps: steps per second of whole iterations
    """

    n_envs: int
    n_threads: int
    sps: float


def bench_preset(
    algo: str,
    env_id: str,
    config: str | None,
    n_envs_list: Sequence[int] | None,
    n_threads_list: Sequence[int],
    n_rounds: int,
    file: str,
) -> int:
    """
    Take hyperparameters through a few iterations for each number of environments and of threads, and write them down with the
    best.

    :param algo: an algorithm of a plug-in that collects rollouts: hppo, impala
    :param env_id: the environment
    :param config: a preset or a file to begin with; the algorithm's own by default
    :param n_envs_list: the numbers of environments; None for usual ones
    :param n_threads_list: the numbers of torch's threads
    :param n_rounds: iterations of each that count
    :param file: where the preset goes
    :return: the exit code
    :raises ValueError: if the hyperparameters are wrong
    :raises MissingExtraError: if the environment needs an extra that is not installed
    """
    register_envs()
    check_extra(env_id)
    if env_id not in gym.registry:
        raise ValueError(f"--env: there is no environment {env_id!r}{suggest(env_id, gym.registry)}")
    spec = get_spec(algo)
    algorithm = spec.load("algorithm")
    path = str(spec.hyperparams_path) if config is None else find_config(config, HYPERPARAMS / "presets")
    check_config(path, env_id, algorithm, is_atari=False, overrides=None)
    written = dict(read_section(path, env_id, is_atari=False))
    section = normalise(written, algorithm)
    n_actors = section.get("n_actors") or 0
    if n_envs_list is None:
        n_envs_list = [n_actors * n for n in _N_ENVS_EACH] if n_actors else _N_ENVS
    for n_envs in n_envs_list:
        check_shares(n_envs, n_actors or 1)
    section.setdefault("n_steps", inspect.signature(algorithm).parameters["n_steps"].default)
    left_out = [key for key in _NOT_MEASURED if section.get(key)]
    if left_out:
        print(f"Not measured, since it is done without: {', '.join(left_out)}")
    cases = [(n_envs, n_threads) for n_envs in n_envs_list for n_threads in n_threads_list]
    n_threads_before = th.get_num_threads()
    rates = [Rate(*case, _measure(algorithm, env_id, section, *case, n_rounds)) for case in track(cases, transient=True)]
    th.set_num_threads(n_threads_before)
    best = choose(rates)
    table = Table("n_envs", "threads", "steps/s", title=env_id)
    for rate in rates:
        table.add_row(str(rate.n_envs), str(rate.n_threads), f"{rate.sps:,.0f}{' *' if rate == best else ''}")
    get_console().print(table)
    n_steps = max(1, section.get("n_envs", 1) * section["n_steps"] // best.n_envs)  # rollouts as large as before
    if any(check_further(algorithm, {**section, "n_steps": n_steps})):
        n_steps = section["n_steps"]  # no minibatch would hold so long an unroll
    _write(file, env_id, {**written, "n_envs": best.n_envs, "n_steps": n_steps}, best)
    print(f"python -m rl_zoo3.train --algo {algo} --env {env_id} -conf {file} --num-threads {best.n_threads} -P")
    return 0


def choose(rates: Sequence[Rate]) -> Rate:
    """
    :param rates: what was measured
    :return: the fewest environments that come near to the best rate, since more of them mean fewer updates; then the faster
    """
    good = [rate for rate in rates if rate.sps >= GOOD_ENOUGH * max(rates, key=lambda rate: rate.sps).sps]
    return min(good, key=lambda rate: (rate.n_envs, -rate.sps))


def _measure(algorithm: Any, env_id: str, section: dict[str, Any], n_envs: int, n_threads: int, n_rounds: int) -> float:
    th.set_num_threads(n_threads)
    wrapper = resolve(VEC_ENVS, section["vec_env_wrapper"]) if "vec_env_wrapper" in section else None
    vec_env_cls: Any = partial(ActorVecEnv, vec_env_wrapper=wrapper) if section.get("n_actors") else None
    venv = make_vec_env(env_id, n_envs, env_kwargs=section.get("env_kwargs"), vec_env_cls=vec_env_cls)
    if wrapper is not None and vec_env_cls is None:
        venv = wrapper(venv)
    others = {*ZOO_KEYS, *CHECKPOINT_KEYS, *_NOT_MEASURED, "n_steps", "batch_size"}
    settings = {key: value for key, value in section.items() if key not in others}
    # Schedules, which only the zoo reads, cost nothing.
    settings = {key: value for key, value in settings.items() if not str(value).startswith("lin_")}
    if isinstance(settings.get("policy_kwargs"), str):
        settings["policy_kwargs"] = evaluate(settings["policy_kwargs"])
    if "." in settings["policy"]:
        settings["policy"] = import_dotted(settings["policy"])
    n_steps = min(32, section["n_steps"])
    if section.get("batch_size"):
        settings["batch_size"] = min(section["batch_size"], n_envs * n_steps)
    model = algorithm(env=venv, n_steps=n_steps, device="cpu", seed=0, **settings)
    clock = Clock()
    model.learn((_N_UNCOUNTED + n_rounds) * n_envs * n_steps, clock)
    venv.close()
    return n_envs * n_steps / statistics.median(np.diff(clock.times[_N_UNCOUNTED - 1 :]))


def _write(file: str, env_id: str, section: dict[str, Any], best: Rate) -> None:
    machine = describe_machine()
    header = (
        f"# Measured with {env_id} on {machine['available_cpus']} CPUs ({machine['processor']}), {machine['date']}:\n"
        f"# {best.sps:,.0f} steps per second; use it with --num-threads {best.n_threads}.\n"
    )
    # Through JSON: what was read from YAML remembers its lines, which PyYAML does not write.
    preset = {"default": json.loads(json.dumps(section))}
    Path(file).write_text(header + yaml.safe_dump(preset, sort_keys=False), encoding="utf-8")
