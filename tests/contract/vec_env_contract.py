"""What SB3 expects of every VecEnv: the parts that the contract tests of native tasks and of Procgen share."""

import csv
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from stable_baselines3.common.monitor import load_results

# Any, and not VecEnv: its observations may be dicts to a type checker.
Make = Callable[..., Any]
Actions = Iterator[np.ndarray]


def step_until_done(venv: Any, actions: Actions, max_steps: int) -> tuple[Any, int]:
    """
    :param venv: environments that have been reset
    :param actions: what to do
    :param max_steps: when to give up
    :return: the results of the step in which the first environment ended, and its index
    """
    for _, row in zip(range(max_steps), actions, strict=False):
        results = venv.step(row)
        if results[2].any():
            return results, int(np.flatnonzero(results[2])[0])
    raise AssertionError("no environment ended")


def check_seeds(make: Make) -> tuple[Any, Any]:
    """
    :param make: makes VecEnvs with a ``seed``
    :return: two of them with one seed, at the first observation
    """
    first, second, other = make(seed=7), make(seed=7), make(seed=8)
    obs = first.reset()
    assert np.array_equal(obs, second.reset())
    assert not np.array_equal(obs, other.reset())
    assert not np.array_equal(obs[0], obs[1])  # each environment has its own
    assert not np.array_equal(first.reset(), obs)  # a seed is used once
    first.seed(7)
    assert np.array_equal(first.reset(), obs)
    return first, second


def check_nothing_is_overwritten(venv: Any, actions: Actions, max_steps: int) -> None:
    """
    :param venv: environments that have been reset
    :param actions: what to do
    :param max_steps: within how many an episode ends
    """
    (obs, rewards, dones, infos), index = step_until_done(venv, actions, max_steps)
    kept = pickle.loads(pickle.dumps((obs, rewards, dones, infos[index]["terminal_observation"])))
    for _, row in zip(range(60), actions, strict=False):
        venv.step(row)
    for before, after in zip(kept, (obs, rewards, dones, infos[index]["terminal_observation"]), strict=True):
        assert np.array_equal(before, after)


def check_monitor_files(venv: Any, actions: Actions, n_steps: int, folder: Path, keyword: str) -> None:
    """
    :param venv: environments with monitor files
    :param actions: what to do
    :param n_steps: for how long; every environment ends an episode in it
    :param folder: where the files are
    :param keyword: the key of the infos that they hold as well
    """
    venv.reset()
    expected: list[list[dict[str, Any]]] = [[] for _ in range(venv.num_envs)]
    for _, row in zip(range(n_steps), actions, strict=False):
        for index, info in enumerate(venv.step(row)[3]):
            if "episode" in info:
                expected[index].append(info["episode"])
    env_id = venv.get_attr("spec")[0].id
    venv.close()
    for index, episodes in enumerate(expected):
        with open(folder / f"{index}.monitor.csv") as file:
            assert json.loads(file.readline()[1:])["env_id"] == env_id
            rows = list(csv.DictReader(file))
        assert episodes
        for key in ("r", "l", keyword):
            assert [float(row[key]) for row in rows] == [episode[key] for episode in episodes]
    assert len(load_results(str(folder))) == sum(map(len, expected))
