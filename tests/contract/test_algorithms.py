"""What SB3 and the zoo expect of every algorithm."""

import inspect
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import optuna
import pytest
import torch as th
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from optuna.trial import create_trial
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

from sb3_hrl.registry import ALGORITHMS as ALGORITHMS_GROUP
from sb3_hrl.registry import get_spec, plugins
from sb3_hrl.zoo.validation import check_config
from tests.algorithms import ALGORITHMS, AlgorithmRow

rows = pytest.mark.parametrize("row", ALGORITHMS, ids=lambda row: row.name)


def _train(row: AlgorithmRow, seed: int = 0, n_envs: int = 2) -> Any:
    env = make_vec_env(row.env_id, n_envs=n_envs, seed=seed)
    return row.algorithm("MlpPolicy", env, seed=seed, device="cpu", **row.kwargs).learn(256)


def _flat_parameters(model: Any) -> th.Tensor:
    return th.cat([parameter.detach().flatten() for parameter in model.policy.parameters()])


def test_every_first_party_algorithm_has_a_row() -> None:
    ours = {name for name, plugin in plugins(ALGORITHMS_GROUP).items() if plugin.distribution.startswith("sb3-hrl ")}
    assert ours == {row.name for row in ALGORITHMS}


@rows
def test_spec_is_complete(row: AlgorithmRow) -> None:
    spec = get_spec(row.name)
    assert spec.load("algorithm") is row.algorithm
    sections = yaml.safe_load(spec.hyperparams_path.read_text())
    assert "default" in sections
    for section in sections:
        check_config(str(spec.hyperparams_path), section, row.algorithm, is_atari=False, overrides=None)


@rows
def test_same_seed_same_parameters(row: AlgorithmRow) -> None:
    first, second, other = _train(row, seed=1), _train(row, seed=1), _train(row, seed=2)
    assert th.equal(_flat_parameters(first), _flat_parameters(second))
    assert not th.equal(_flat_parameters(first), _flat_parameters(other))


@rows
def test_save_and_load(row: AlgorithmRow, tmp_path: Path) -> None:
    model = _train(row)
    obs = np.stack([gym.make(row.env_id).observation_space.sample() for _ in range(5)])
    model.save(tmp_path / "model")
    # As enjoy does it: no environment, and schedules replaced.
    custom_objects = {"learning_rate": 0.0, "lr_schedule": lambda _: 0.0, "clip_range": lambda _: 0.0}
    loaded: Any = row.algorithm.load(tmp_path / "model", custom_objects=custom_objects, device="cpu", seed=0)
    assert th.equal(_flat_parameters(model), _flat_parameters(loaded))
    assert np.array_equal(model.predict(obs, deterministic=True)[0], loaded.predict(obs, deterministic=True)[0])
    for name, value in model.policy.optimizer.state_dict()["state"].items():
        assert th.equal(value["exp_avg"], loaded.policy.optimizer.state_dict()["state"][name]["exp_avg"])
    loaded = row.algorithm.load(tmp_path / "model", env=make_vec_env(row.env_id, n_envs=3), device="cpu")
    loaded.learn(64)
    assert not th.equal(_flat_parameters(model), _flat_parameters(loaded))


@rows
@pytest.mark.parametrize(
    ("env_id", "policy"), [("CartPole-v1", "MlpPolicy"), ("Pendulum-v1", "MlpPolicy"), ("DictPendulum", "MultiInputPolicy")]
)
def test_spaces(row: AlgorithmRow, env_id: str, policy: str) -> None:
    def make() -> gym.Env:
        if env_id != "DictPendulum":
            return gym.make(env_id)
        space = gym.spaces.Dict({"obs": gym.make("Pendulum-v1").observation_space})
        return gym.wrappers.TransformObservation(gym.make("Pendulum-v1"), lambda obs: {"obs": obs}, space)

    model: Any = row.algorithm(policy, make_vec_env(make, n_envs=2), device="cpu", **row.kwargs)
    before = _flat_parameters(model)
    model.learn(256)
    assert not th.equal(before, _flat_parameters(model))
    rewards, _ = evaluate_policy(model, make_vec_env(make, n_envs=1), n_eval_episodes=1)
    assert np.isfinite(rewards)


@rows
def test_normalised_subprocesses(row: AlgorithmRow) -> None:
    env = VecNormalize(make_vec_env(row.env_id, n_envs=2, vec_env_cls=SubprocVecEnv))
    row.algorithm("MlpPolicy", env, device="cpu", **row.kwargs).learn(128)
    assert isinstance(env.obs_rms, RunningMeanStd)
    assert env.obs_rms.count > 128
    env.close()


@rows
def test_every_argument_is_stored_under_its_name(row: AlgorithmRow) -> None:
    """``load`` puts saved values back by name: an argument stored under another name would be lost."""
    model = row.algorithm("MlpPolicy", row.env_id, device="cpu", **row.kwargs)
    handled_elsewhere = {"self", "policy", "env", "stats_window_size", "_init_setup_model"}
    names = set(inspect.signature(row.algorithm.__init__).parameters) - handled_elsewhere
    assert {name for name in names if not hasattr(model, name)} == set()


@rows
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 2**32 - 1), n_envs=st.integers(1, 64))
def test_sampler_and_converter_are_inverse(row: AlgorithmRow, seed: int, n_envs: int) -> None:
    spec = get_spec(row.name)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    trial = study.ask()
    sampled = spec.load("sampler")(trial, 3, n_envs, {})
    # What --trial-id will load: the parameters as the storage keeps them.
    stored = create_trial(params=trial.params, distributions=trial.distributions, value=0.0)
    assert spec.load("converter")(stored.params) == sampled
    # Every suggestion matters: another value of any one of them gives other arguments.
    for name, distribution in trial.distributions.items():
        other = next(value for value in _values(distribution) if value != trial.params[name])
        assert spec.load("converter")({**trial.params, name: other}) != sampled
    accepted = set(inspect.signature(row.algorithm.__init__).parameters)
    assert set(sampled) <= accepted
    # A rollout holds at least one minibatch.
    assert sampled["n_steps"] * n_envs >= sampled.get("batch_size", 1)


def _values(distribution: Any) -> list[Any]:
    return list(getattr(distribution, "choices", None) or (distribution.low, distribution.high))


optuna.logging.set_verbosity(optuna.logging.WARNING)
