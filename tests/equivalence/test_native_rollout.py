"""Autonomous rollouts: the same numbers as SB3's own loop, whatever the threads; and all that a user sees of a rollout."""

import csv
import hashlib
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecCheckNan, VecNormalize
from torch import nn

from sb3_hrl import native
from sb3_hrl.envs.task import native_tasks
from sb3_hrl.errors import NativeError
from sb3_hrl.hppo import HPPO
from sb3_hrl.rollout import TimeAwareRolloutBuffer, algorithm, replay
from sb3_hrl.rollout.native_rollout import default_shard_size, native_policy, why_lockstep
from sb3_hrl.rollout.normalization import update_normalization, update_normalization_natively
from sb3_hrl.vec_env import NativeVecEnv
from sb3_hrl.vec_env.native_vec_env import MAX_UNSTABLE_IN_A_ROW
from sb3_hrl.wrappers import ActionHold
from tests.records import Records
from tests.reference.linear import linear_in_order
from tests.training_state import differences, training_state

NOISE_SEED = 77
HOLD = {"hold_seconds": 0.024}
ANNEALED_HOLD = {"start_seconds": 0.064, "end_seconds": 0.008, "anneal_decisions": 100}
WALKER: dict[str, Any] = {
    "env_id": "MuscleWalkerWalk-v0",
    "muscle_kwargs": {"n_pretrain": 64, "pretrain_epochs": 1, "hidden": [16, 16], "n_epochs": 1},
}


def _make(
    rollout: str = "native",
    env_id: str = "Hopper-v5",
    n_envs: int = 8,
    n_steps: int = 32,
    norm: dict[str, Any] | None = None,
    shard_size: int | None = None,
    env: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """A model with its environments; by default one shard holds all of them."""
    venv: Any = NativeVecEnv(env_id, n_envs=n_envs, **(env or {}))
    if norm is not None:
        venv = VecNormalize(venv, **norm)
    batch_size = n_steps * n_envs // 4 if n_envs * n_steps % 4 == 0 else n_steps * n_envs
    defaults = {"batch_size": batch_size, "n_epochs": 2, "seed": 3, "device": "cpu", "freeze_normalization": True}
    defaults["shard_size"] = n_envs if shard_size is None else shard_size
    model = HPPO("MlpPolicy", venv, n_steps=n_steps, rollout=rollout, **{**defaults, **kwargs})
    model.noise_seed = NOISE_SEED
    return model


def _draw(model: Any, n_rollouts: int) -> np.ndarray:
    """The random numbers that the native workers draw next [T, E, n_noise]."""
    where = model.noise_seed, model.n_noise_decisions, model.n_steps * n_rollouts, model.n_envs
    return native.load().action_noise(*where, native_policy(model.policy).n_noise, is_uniform=_is_discrete(model))


def _is_discrete(model: Any) -> bool:
    return isinstance(model.action_space, spaces.Discrete)


def _feed_lockstep(model: Any, noise: np.ndarray, patch: pytest.MonkeyPatch) -> None:
    """Let SB3's distributions take their random numbers from an array [T, E, n_noise], the first of them now."""
    rows, first = iter(th.as_tensor(noise)), model.num_timesteps // model.n_envs

    def choose(probabilities: th.Tensor, *_: Any) -> th.Tensor:
        sums = probabilities.double().cumsum(1)
        return th.searchsorted(sums, next(rows).double(), right=True).clamp(max=probabilities.shape[1] - 1)

    def reset_noise(n_envs: int) -> None:
        if n_envs == model.n_envs:  # not the learner's, which has no effect
            std = model.policy.action_dist.get_std(model.policy.log_std.detach())
            matrices = noise[model.num_timesteps // n_envs - first].reshape(n_envs, *std.shape)
            model.policy.action_dist.exploration_matrices = th.as_tensor(matrices) * std

    if model.use_sde:
        patch.setattr(model.policy, "reset_noise", reset_noise)
    elif _is_discrete(model):
        patch.setattr(th, "multinomial", choose)
    else:
        patch.setattr(th.distributions.normal, "_standard_normal", lambda *_, **__: next(rows))


def _feed_native(model: Any, noise: np.ndarray, patch: pytest.MonkeyPatch) -> None:
    parts, collect = iter(noise.reshape(-1, model.n_steps, *noise.shape[1:])), NativeVecEnv.collect_rollout
    patch.setattr(NativeVecEnv, "collect_rollout", lambda *args, **kwargs: collect(*args, **kwargs, noise=next(parts)))


def _learn(model: Any, n_rollouts: int, callback: Any = None, noise: np.ndarray | None = None, **kwargs: Any) -> Any:
    """Train with given random numbers; by default a lock-step model has those that the native workers draw."""
    with pytest.MonkeyPatch.context() as patch:
        if model.rollout == "lockstep":
            patch.setattr(algorithm, "native_forward", nullcontext)  # the policy's own forward is the twin
            if kwargs.get("reset_num_timesteps", True):
                model.num_timesteps = 0
            _feed_lockstep(model, _draw(model, n_rollouts) if noise is None else noise, patch)
            model.n_noise_decisions += model.n_steps * n_rollouts
        elif noise is not None:
            _feed_native(model, noise, patch)
        return model.learn(model.n_steps * n_rollouts * model.n_envs, callback=callback, **kwargs)


def _digest(model: Any) -> str:
    digest = hashlib.sha256()
    for name, array in training_state(model).items():
        digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


# --- the same numbers as lock-step ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norm", "hold"),
    [
        (None, None),
        ({}, None),
        ({"norm_obs": False}, None),
        ({"norm_reward": False, "clip_obs": 0.5}, None),
        ({"training": False}, None),
        (None, HOLD),
        ({}, ANNEALED_HOLD),
    ],
    ids=str,
)
def test_ten_updates_are_those_of_lockstep(norm: dict[str, Any] | None, hold: dict[str, Any] | None) -> None:
    """Hopper terminates and is not truncated in so few steps, so there is no bootstrap and all of it is exact."""
    models = [_learn(_make(rollout, norm=norm, env={"hold": hold}), 10) for rollout in ("native", "lockstep")]
    assert differences(*models) == []
    assert len(models[0].ep_info_buffer) > 50


@pytest.mark.parametrize("hold", [None, {"hold_seconds": 0.06}], ids=str)
def test_ten_updates_with_muscles(hold: dict[str, Any] | None) -> None:
    """The walker falls long before its time limit. What the muscles learn from, and what they learn, is the same, too."""
    models = [_learn(_make(rollout, norm={}, env={"hold": hold}, **WALKER), 10) for rollout in ("native", "lockstep")]
    assert differences(*models) == []
    assert len(models[0].ep_info_buffer) > 8
    other = _make(norm={}, env={"hold": hold}, **WALKER)
    other.noise_seed += 1
    assert {"muscle.samples", "muscle.0"} <= set(differences(models[0], _learn(other, 10)))


def test_other_noise_or_statistics_that_are_not_frozen_would_differ() -> None:
    model = _learn(_make(norm={}), 2)
    assert {"buffer.actions", "buffer.values", "obs_rms"} <= set(
        differences(model, _learn(_make("lockstep", norm={}, freeze_normalization=False), 2))
    )
    other = _make("lockstep", norm={})
    other.noise_seed += 1
    assert "buffer.actions" in differences(model, _learn(other, 2))


def _predict_row_by_row(model: Any, obs: np.ndarray) -> np.ndarray:
    """Values as lock-step has them: of all environments at once after the rollout, else one by one."""
    rows = [obs] if len(obs) == model.n_envs and obs is model._last_obs else obs[:, None]
    with th.no_grad():
        values = [model.policy.predict_values(th.as_tensor(row)).flatten() for row in rows]
    return th.cat(values).numpy()


class _Timeouts(BaseCallback):
    """Keeps the last observations of the episodes that a time limit cut, by step and then by environment."""

    def __init__(self) -> None:
        super().__init__()
        self.terminal_obs: list[np.ndarray] = []

    def _on_step(self) -> bool:
        infos = self.locals["infos"]
        self.terminal_obs += [info["terminal_observation"] for info in infos if info["TimeLimit.truncated"]]
        return True


def _bootstrap_from_a_batch(model: Any, terminal_obs: list[np.ndarray], patch: pytest.MonkeyPatch) -> None:
    """Let lock-step, which asks for the value of one row at a time, have those that all rows together give."""
    predict = model.policy.predict_values
    with th.no_grad():
        values = iter(predict(th.as_tensor(np.stack(terminal_obs))).split(1))
    patch.setattr(model.policy, "predict_values", lambda obs: next(values) if len(obs) == 1 else predict(obs))


@pytest.mark.parametrize("hold", [None, {"hold_seconds": 0.15}], ids=str)
@pytest.mark.parametrize("norm", [None, {}], ids=str)
def test_ten_updates_with_time_limits(
    norm: dict[str, Any] | None, hold: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    That the values for the bootstrap come from one batch instead of row by row is all that there is between the modes: ten
    updates are exact if the native mode takes them row by row, and the first one is if lock-step takes them from the batch.
    """
    settings: dict[str, Any] = {"env_id": "HalfCheetah-v5", "norm": norm, "env": {"max_episode_steps": 50, "hold": hold}}
    slow = _learn(_make("lockstep", **settings), 10)
    with monkeypatch.context() as patch:
        patch.setattr(replay, "predict_values", _predict_row_by_row)
        assert differences(_learn(_make(**settings), 10), slow) == []
    assert len(slow.ep_info_buffer) >= 8 * 6

    timeouts = _Timeouts()
    fast, by_row = _make(n_steps=50, **settings), _make("lockstep", n_steps=50, **settings)
    _learn(fast, 1)
    _learn(by_row, 1, callback=timeouts)
    by_batch = _make("lockstep", n_steps=50, **settings)
    with monkeypatch.context() as patch:
        _bootstrap_from_a_batch(by_batch, timeouts.terminal_obs, patch)
        _learn(by_batch, 1)
    assert differences(fast, by_batch) == []
    gaps = fast.rollout_buffer.rewards != by_row.rollout_buffer.rewards
    assert 0 < gaps.sum() <= len(timeouts.terminal_obs) == len(fast.ep_info_buffer)


@pytest.mark.parametrize("env_id", ["Swimmer-v5", "Reacher-v5"])
def test_weights_after_ten_updates_with_time_limits(env_id: str) -> None:
    """
    Rewards that differ in their last bits may round a weight, which is of size one, differently in each of the 80 steps of
    the optimizer. These two tasks have no contacts, which would make a last bit of an action grow from rollout to rollout.
    """
    settings: dict[str, Any] = {"env_id": env_id, "norm": {}, "env": {"max_episode_steps": 20}}
    fast, slow = (_learn(_make(rollout, **settings), 10) for rollout in ("native", "lockstep"))
    other = _make(**settings)
    other.noise_seed += 1
    _learn(other, 10)
    gap, other_gap = (
        max(np.abs(training_state(model)[name] - training_state(slow)[name]).max() for name in _policy_names(slow))
        for model in (fast, other)
    )
    assert fast.rollout_buffer.rewards.tobytes() != slow.rollout_buffer.rewards.tobytes()
    assert gap <= 80 * np.finfo(np.float32).eps / 2
    assert other_gap > 1e-2


def _policy_names(model: Any) -> list[str]:
    return [name for name in training_state(model) if name.startswith("policy.")]


@pytest.mark.parametrize("hold", [None, HOLD], ids=str)
def test_time_limits_are_bootstrapped(hold: dict[str, Any] | None) -> None:
    left = _learn(_make(norm={}, env={"max_episode_steps": 10, "hold": hold}), 1).rollout_buffer
    unlimited = _learn(_make(norm={}, env={"hold": hold}), 1).rollout_buffer
    is_cut = left.episode_starts[1:] > unlimited.episode_starts[1:]
    assert is_cut.any()
    first_cut = np.argmax(is_cut.any(axis=1))
    here = is_cut[first_cut]
    assert (np.abs(left.rewards[first_cut][here] - unlimited.rewards[first_cut][here]) > 1e-4).all()


@pytest.mark.parametrize(("n_envs", "shard_size"), [(5, 8), (1, 1)])
def test_one_shard_is_exact(n_envs: int, shard_size: int) -> None:
    settings: dict[str, Any] = {"n_envs": n_envs, "n_steps": 16, "shard_size": shard_size}
    fast, slow = (_learn(_make(rollout, **settings), 1) for rollout in ("native", "lockstep"))
    assert differences(fast, slow) == []


def _act_in_order(model: Any, patch: pytest.MonkeyPatch) -> None:
    """Let SB3's loop add up the actor's products in order, as the workers of several shards do; not the learner."""

    def forward(layer: nn.Linear, obs: th.Tensor) -> th.Tensor:
        if th.is_grad_enabled():
            return nn.functional.linear(obs, layer.weight, layer.bias)
        return th.as_tensor(linear_in_order(obs.numpy(), layer.weight.numpy(), layer.bias.numpy()))

    for layer in (*model.policy.mlp_extractor.policy_net, model.policy.action_net):
        if isinstance(layer, nn.Linear):
            patch.setattr(layer, "forward", partial(forward, layer))


class _ValuesByShards(BaseCallback):
    """Takes the values of a rollout again, from one batch for each shard, as a worker does."""

    def __init__(self, shard_size: int) -> None:
        super().__init__()
        self.shard_size = shard_size

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.locals["rollout_buffer"]
        for first in range(0, buffer.n_envs, self.shard_size):
            values = buffer.values[:, first : first + self.shard_size]
            obs = buffer.observations[:, first : first + self.shard_size].reshape(values.size, -1)
            with th.no_grad():
                values[:] = self.model.policy.predict_values(th.as_tensor(obs)).reshape(values.shape)  # type: ignore[operator]
        buffer.compute_returns_and_advantage(last_values=self.locals["values"], dones=self.locals["dones"])


@pytest.mark.parametrize(
    ("n_envs", "shard_size", "env"), [(8, 3, {}), (7, 2, {"policy_kwargs": {"net_arch": [80, 30]}}), (7, 5, WALKER)]
)
def test_several_shards_differ_by_the_order_of_sums_only(
    n_envs: int, shard_size: int, env: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Several shards add up the actor's products in order, so that a row's bits do not depend on the others. In lock-step with
    that order, three updates are exact; with muscles, too, although four environments, one and two of them have asked the
    muscle network together.
    """
    settings: dict[str, Any] = {"n_envs": n_envs, "n_steps": 16, **env}
    fast, slow = _learn(_make(shard_size=shard_size, **settings), 3), _make("lockstep", **settings)
    with monkeypatch.context() as patch:
        _act_in_order(slow, patch)
        _learn(slow, 3, callback=_ValuesByShards(shard_size))
    assert differences(fast, slow) == []
    assert {"buffer.actions", "buffer.values"} <= set(differences(fast, _learn(_make("lockstep", **settings), 3)))


@pytest.mark.parametrize(
    "policy_kwargs",
    [
        *({"activation_fn": activation} for activation in (nn.ReLU, nn.ELU, nn.LeakyReLU, nn.SiLU, nn.GELU, nn.Identity)),
        {"net_arch": []},
        {"net_arch": {"pi": [32], "vf": [16, 8]}, "log_std_init": -1.0, "ortho_init": False},
        {"net_arch": [128, 256, 128]},
        {"share_features_extractor": False},
    ],
    ids=str,
)
def test_networks(policy_kwargs: dict[str, Any]) -> None:
    fast, slow = (_learn(_make(rollout, policy_kwargs=policy_kwargs), 1) for rollout in ("native", "lockstep"))
    assert differences(fast, slow) == []
    assert np.abs(fast.rollout_buffer.values).max() > 1e-3


# Each with what its random numbers are.
GSDE: dict[str, Any] = {"use_sde": True, "sde_sample_freq": 4}
DISTRIBUTIONS: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "gSDE": {**GSDE, "policy_kwargs": {"log_std_init": -1.0}},
    "gSDE of the rollout": {"use_sde": True, "policy_kwargs": {"full_std": False, "use_expln": True, "log_std_init": 0.5}},
    "squashed gSDE": {**GSDE, "policy_kwargs": {"squash_output": True, "log_std_init": -0.5, "net_arch": []}},
    "categorical": {},
}
BANG_BANG = "actions: [[1, 1, 1], [-1, -1, -1], [0, 0.5, -0.5], [0.25, -1, 1]]\n"


@pytest.fixture
def bang_bang(tmp_path: Path) -> str:
    """Hopper with a choice of four actions."""
    path = tmp_path / "bang_bang.yaml"
    path.write_text(BANG_BANG + native_tasks()["Hopper-v5"].read_text())
    return str(path)


@pytest.mark.parametrize("hold", [None, HOLD], ids=str)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distributions(name: str, hold: dict[str, Any] | None, bang_bang: str) -> None:
    settings = {"norm": {}, "env": {"hold": hold}, **DISTRIBUTIONS[name]}
    settings["env_id"] = bang_bang if name == "categorical" else "Hopper-v5"
    recorders = [_Recorder(), _Recorder()]
    fast, slow = (
        _learn(_make(rollout, **settings), 4, callback=recorder)
        for rollout, recorder in zip(("native", "lockstep"), recorders, strict=True)
    )
    assert differences(fast, slow) == []
    for left, right in zip(recorders[0].steps, recorders[1].steps, strict=True):
        np.testing.assert_equal(left, right)
    actions = np.array([step["clipped_actions"] for step in recorders[0].steps])
    assert (actions.max() <= 1 and actions.min() < -0.5) or set(actions.flat) == {0, 1, 2, 3}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_both_modes_take_the_same_array(name: str, bang_bang: str) -> None:
    settings = {"env_id": bang_bang if name == "categorical" else "Hopper-v5", **DISTRIBUTIONS[name]}
    random = np.random.default_rng(0)
    shape = (64, 8, native_policy(_make(**settings).policy).n_noise)
    noise = (random.random(shape) if name == "categorical" else random.standard_normal(shape)).astype(np.float32)
    fast, slow = (_learn(_make(rollout, **settings), 2, noise=noise) for rollout in ("native", "lockstep"))
    assert differences(fast, slow) == []
    assert "buffer.actions" in differences(fast, _learn(_make(**settings), 2))


def test_torchs_own_random_numbers_fed_to_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[np.ndarray] = []
    draw = th.distributions.normal._standard_normal

    def note(*args: Any, **kwargs: Any) -> th.Tensor:
        drawn.append(draw(*args, **kwargs).numpy())
        return th.as_tensor(drawn[-1])

    slow = _make("lockstep")
    with monkeypatch.context() as patch:
        patch.setattr(th.distributions.normal, "_standard_normal", note)
        slow.learn(2 * 32 * 8)
    slow.n_noise_decisions = 64
    assert differences(_learn(_make(), 2, noise=np.stack(drawn)), slow) == []


def test_noise_of_another_shape_is_refused() -> None:
    with pytest.raises(ValueError, match=r"noise: expected the shape \(32, 8, 3\), got \(32, 8, 2\)"):
        _learn(_make(), 1, noise=np.zeros((32, 8, 2), np.float32))


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_log_probs_and_values_are_sb3s(name: str, bang_bang: str) -> None:
    """One batch of all rows against shards of two: sums of 64 products round by some eps of numbers below ten."""
    settings = {"env_id": bang_bang if name == "categorical" else "Hopper-v5", **DISTRIBUTIONS[name]}
    model = _make(n_envs=6, norm={}, shard_size=2, n_epochs=1, learning_rate=0.0, **settings)
    buffer = _learn(model, 1).rollout_buffer
    # `get` has put environment after environment by now.
    actions = th.as_tensor(buffer.actions).squeeze(-1)
    with th.no_grad():
        values, log_probs, _ = model.policy.evaluate_actions(th.as_tensor(buffer.observations), actions)
    tolerance = 16 * float(np.finfo(np.float32).eps)
    assert np.allclose(log_probs.numpy(), buffer.log_probs.flatten(), rtol=tolerance, atol=tolerance)
    assert np.allclose(values.numpy().flatten(), buffer.values.flatten(), rtol=tolerance, atol=tolerance)
    assert not np.allclose(log_probs.numpy()[::-1], buffer.log_probs.flatten(), rtol=tolerance, atol=tolerance)


def test_modes_may_alternate() -> None:
    modes = _make(norm={}, env={"hold": ANNEALED_HOLD})
    slow = _make("lockstep", norm={}, env={"hold": ANNEALED_HOLD})
    for rollout in ("native", "lockstep", "native", "lockstep"):
        modes.rollout = rollout
        for model in (modes, slow):
            np.random.seed(0)  # of the minibatches: the two share it
            _learn(model, 1, reset_num_timesteps=False)
        assert differences(modes, slow) == []
        inner = [model.get_vec_normalize_env().venv for model in (modes, slow)]
        assert inner[0].reset_infos == inner[1].reset_infos
        assert inner[0].get_attr("hold_decisions") == inner[1].get_attr("hold_decisions")
    assert inner[0].reset_infos[0]


# --- the same numbers for any number of threads -----------------------------------------------------------------------


def _thread_digest(n_threads: int, noise_seed: int | None = None) -> str:
    model = _make(n_envs=11, n_steps=16, shard_size=2, norm={}, env={"n_threads": n_threads, "max_episode_steps": 12})
    model.noise_seed = noise_seed  # by default drawn from the model's own random numbers
    return _digest(_learn_plainly(model))


def _learn_plainly(model: Any) -> Any:
    return model.learn(3 * model.n_steps * model.n_envs)


def test_threads_change_no_byte() -> None:
    digests = {n_threads: _thread_digest(n_threads) for n_threads in (1, 2, 3, 8)}
    assert len(set(digests.values())) == 1
    assert _thread_digest(2, noise_seed=1) != digests[2]
    code = "from tests.equivalence.test_native_rollout import _thread_digest as d; import tests.conftest; print(d(2))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.split()[-1] == digests[2]


def test_the_seed_decides() -> None:
    def actions(seed: int | None) -> bytes:
        model = _make(n_steps=8, n_epochs=1, seed=seed)
        model.noise_seed = None
        return _learn_plainly(model).rollout_buffer.actions.tobytes()

    assert actions(1) == actions(1)
    assert actions(1) != actions(2)
    assert actions(None) != actions(None)


def test_noise_is_standard_normal_and_has_no_gaps() -> None:
    noise = native.load().action_noise(5, 0, 500, 40, 3)
    assert noise.dtype == np.float32
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 1) < 0.02
    assert len(np.unique(noise)) > 0.99 * noise.size
    assert np.array_equal(native.load().action_noise(5, 200, 300, 20, 3), noise[200:, :20])
    assert np.abs(np.corrcoef(noise[:, :, 0].T) - np.eye(40)).max() < 0.25


def test_torch_threads_stay_the_learners() -> None:
    before = th.get_num_threads()
    seen: list[int] = []
    try:
        th.set_num_threads(2)
        for n_threads in (1, 3):
            _learn_plainly(_make(n_steps=8, shard_size=2, env={"n_threads": n_threads}))
            thread = threading.Thread(target=lambda: seen.append(th.get_num_threads()))
            thread.start()
            thread.join()
            seen.append(th.get_num_threads())
    finally:
        th.set_num_threads(before)
    assert seen == [2] * 4


def test_the_shard_size_depends_on_the_environments_only() -> None:
    assert [default_shard_size(n) for n in (1, 8, 16, 32, 1024)] == [2, 2, 4, 8, 8]


# --- normalisation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rollout", ["native", "lockstep"])
def test_statistics_learn_from_the_whole_rollout(rollout: str, tmp_path: Path) -> None:
    model = _make(rollout, norm={"gamma": 0.9, "clip_obs": 1e9, "clip_reward": 1e9})
    normalize = model.get_vec_normalize_env()
    obs_rms, ret_rms = RunningMeanStd(shape=(11,)), RunningMeanStd(shape=())
    raw: dict[str, list[np.ndarray]] = {"obs": [], "returns": []}
    returns = np.zeros(8)

    def note(locals_: dict[str, Any], globals_: dict[str, Any]) -> bool:
        nonlocal returns, obs_rms
        obs_rms = normalize.obs_rms.copy()
        assert normalize.training
        assert normalize.obs_rms.count == pytest.approx(8, abs=0.01)  # only the reset so far
        raw["obs"].append(locals_["new_obs"] * np.sqrt(normalize.obs_rms.var + normalize.epsilon) + normalize.obs_rms.mean)
        returns = returns * 0.9 + locals_["rewards"] * np.sqrt(normalize.ret_rms.var + normalize.epsilon)
        raw["returns"].append(returns)
        returns = np.where(locals_["dones"], 0, returns)
        return True

    _learn(model, 1, callback=note)
    ret_rms.update(np.concatenate(raw["returns"]))
    obs_rms.update(np.concatenate(raw["obs"]))
    assert normalize.ret_rms.count == pytest.approx(8 * 32, abs=0.01)
    assert normalize.ret_rms.var == pytest.approx(ret_rms.var, rel=1e-5)
    assert normalize.obs_rms.count == pytest.approx(8 + 8 * 32, abs=0.01)
    assert np.allclose(normalize.obs_rms.mean, obs_rms.mean, rtol=0, atol=1e-5)
    assert np.allclose(normalize.obs_rms.var, obs_rms.var, rtol=1e-4)
    normalize.save(tmp_path / "vecnormalize.pkl")
    loaded: Any = VecNormalize.load(str(tmp_path / "vecnormalize.pkl"), NativeVecEnv("Hopper-v5"))
    assert np.array_equal(loaded.obs_rms.mean, normalize.obs_rms.mean)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(
    ("n_rows", "n_columns"), [(1, 3), (7, 1), (1000, 1), (5, 2), (256, 11), (2048, 17), (130, 32), (333, 33), (515, 348)]
)
def test_moments_are_numpys(n_rows: int, n_columns: int, n_threads: int) -> None:
    engine = NativeVecEnv("Hopper-v5", n_threads=n_threads)._engine
    numbers = np.random.default_rng(n_rows).standard_normal((n_rows, n_columns)) * np.logspace(-3, 5, n_columns) + 3
    means, variances = engine.column_moments(numbers)
    assert np.array_equal(means, numbers.mean(axis=0))
    assert np.array_equal(variances, numbers.var(axis=0))
    if n_rows > 10 and n_columns > 1:  # in another order
        assert not np.array_equal(means, numbers.T.copy().mean(axis=1))


@pytest.mark.parametrize("n_steps", [1, 3, 64, 1000])
@pytest.mark.parametrize("n_envs", [1, 5, 16])
@pytest.mark.parametrize("is_training", [True, False])
def test_statistics_are_those_of_the_twin(n_steps: int, n_envs: int, is_training: bool) -> None:
    random = np.random.default_rng(n_steps + n_envs)
    venv: Any = NativeVecEnv("Hopper-v5", n_envs=n_envs)
    left, right = (VecNormalize(venv, gamma=0.97) for _ in range(2))
    for _ in range(3):
        raw_obs = random.standard_normal((n_steps, n_envs, 11)) * 100
        rewards = random.standard_normal((n_steps, n_envs)).astype(np.float32)
        dones = random.random((n_steps, n_envs)) < 0.1
        left.training = right.training = is_training
        update_normalization_natively(left, venv._engine, raw_obs, rewards, dones)
        update_normalization(right, raw_obs, rewards, dones)
        assert np.array_equal(left.returns, right.returns)
        for mine, theirs in ((left.obs_rms, right.obs_rms), (left.ret_rms, right.ret_rms)):
            for name in ("mean", "var", "count"):
                assert np.array_equal(getattr(mine, name), getattr(theirs, name))
                assert type(getattr(mine, name)) is type(getattr(theirs, name))
    assert (left.ret_rms.count > 1) == is_training


# --- callbacks --------------------------------------------------------------------------------------------------------


class _Recorder(BaseCallback):
    def __init__(self) -> None:
        super().__init__()
        self.steps: list[dict[str, Any]] = []
        self.events: list[str] = []

    def _on_rollout_start(self) -> None:
        self.events.append("start")

    def _on_rollout_end(self) -> None:
        self.events.append("end")

    def _on_step(self) -> bool:
        names = ("new_obs", "rewards", "dones", "actions", "clipped_actions", "values", "log_probs", "n_steps")
        step = {name: np.copy(th.as_tensor(self.locals[name]).numpy()).squeeze() for name in names}
        infos = [dict(info) for info in self.locals["infos"]]
        for info in infos:
            for name in ("episode", "hold_episode"):
                if name in info:
                    info[name] = {key: value for key, value in info[name].items() if key != "t"}
        self.steps.append({**step, "infos": infos, "n": (self.num_timesteps, self.model.num_timesteps)})
        self.steps[-1]["hold_decisions"] = self.model.hold_decisions  # type: ignore[attr-defined]
        self.events.append("step")
        return True


@pytest.mark.parametrize("hold", [None, HOLD], ids=str)
def test_callbacks_see_every_step_as_in_lockstep(hold: dict[str, Any] | None, tmp_path: Path) -> None:
    recorders, rows = [], []
    for rollout in ("native", "lockstep"):
        files = [str(tmp_path / f"{rollout}{index}.monitor.csv") for index in range(8)]
        env = {"hold": hold, "max_episode_steps": 15, "monitor_files": files, "info_keywords": ("x_position",)}
        model = _make(rollout, norm={}, env=env, n_epochs=1, learning_rate=0.0)
        recorders.append(_Recorder())
        # A learning rate of zero: bootstraps that are rounded differently do not change the next rollout.
        _learn(model, 2, callback=recorders[-1])
        model.env.close()
        rows.append([[row[:2] + row[3:] for row in csv.reader(Path(file).read_text().splitlines()[2:])] for file in files])
    fast, slow = recorders
    assert fast.events == slow.events == (["start"] + ["step"] * 32 + ["end"]) * 2
    for left, right in zip(fast.steps, slow.steps, strict=True):
        np.testing.assert_equal(left, right)
    assert fast.steps[-1]["n"] == (2 * 32 * 8,) * 2
    assert sum("episode" in info for step in fast.steps for info in step["infos"]) > 16
    # A hold's time-outs are bootstrapped, and cleared, by our own callback after the user's.
    assert sum(info["TimeLimit.truncated"] for step in fast.steps for info in step["infos"]) > 8
    assert rows[0] == rows[1]
    assert all(len(lines) > 2 for lines in rows[0])


def test_a_callback_stops_training() -> None:
    model = _make(n_envs=4)
    _learn(model, 4, callback=lambda locals_, globals_: locals_["self"].num_timesteps < 4 * 40)
    assert model.num_timesteps == 4 * 40
    assert model._n_updates == 2  # one rollout, of two epochs
    # The environments ran to the end of the rollout, and training goes on from there.
    _learn(model, 1, reset_num_timesteps=False)
    assert model.num_timesteps == 4 * (40 + 32)


@pytest.mark.filterwarnings("ignore:rich is experimental")
def test_evaluation_checkpoints_and_progress_bar(tmp_path: Path) -> None:
    model = _make(n_envs=4, norm={}, n_epochs=1)
    eval_env = VecNormalize(NativeVecEnv("Hopper-v5"), training=False, norm_reward=False)
    callbacks: list[BaseCallback] = [
        EvalCallback(eval_env, eval_freq=20, n_eval_episodes=1, log_path=str(tmp_path), verbose=0),
        CheckpointCallback(save_freq=50, save_path=str(tmp_path), save_vecnormalize=True),
    ]
    _learn(model, 2, callback=callbacks, progress_bar=True)
    assert np.load(tmp_path / "evaluations.npz")["timesteps"].tolist() == [80, 160, 240]
    assert (tmp_path / "rl_model_200_steps.zip").is_file()
    assert (tmp_path / "rl_model_vecnormalize_200_steps.pkl").is_file()
    assert HPPO.load(tmp_path / "rl_model_200_steps", device="cpu").num_timesteps == 200


def test_the_workers_look_at_the_policy_s_own_weights() -> None:
    """Equality after several updates is tested elsewhere; here, that nothing is copied for it."""
    policy = _make().policy
    handed = native_policy(policy)
    assert native_policy(policy) is handed
    policy.action_net.weight = nn.Parameter(policy.action_net.weight.detach().clone())
    assert native_policy(policy) is not handed


def test_infos_are_built_when_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []
    make_infos = NativeVecEnv._plain_infos
    monkeypatch.setattr(NativeVecEnv, "_plain_infos", lambda *args: built.append(1) or make_infos(*args))  # type: ignore[func-returns-value]
    model = _learn(_make(), 1)
    has_end = model.rollout_buffer.episode_starts[1:].any(axis=1)
    assert len(built) == int(has_end.sum()) + bool(model._last_episode_starts.any()) < 32


def test_save_and_load(tmp_path: Path) -> None:
    model = _learn(_make(norm={}), 1)
    model.save(tmp_path / "model")
    env = VecNormalize(NativeVecEnv("Hopper-v5", n_envs=8))
    loaded = HPPO.load(tmp_path / "model", env=env, device="cpu")
    assert (loaded.rollout, loaded.freeze_normalization, loaded.shard_size) == ("native", True, 8)
    loaded.learn(256)
    assert loaded.num_timesteps == 256


# --- which mode -------------------------------------------------------------------------------------------------------


class CountingBuffer(TimeAwareRolloutBuffer):
    """Looks at what is added."""

    n_added = 0

    def add(self, *args: Any, **kwargs: Any) -> None:
        self.n_added += 1
        super().add(*args, **kwargs)


def _halve(_module: nn.Module, _inputs: Any, output: th.Tensor) -> th.Tensor:
    return output / 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda policy: policy.mlp_extractor.policy_net[0].register_forward_hook(_halve), "the policy's networks have hooks"),
        (
            lambda policy: setattr(policy, "action_net", nn.Sequential(policy.action_net, nn.Tanh())),
            "layer is a Sequential",
        ),
        (lambda policy: setattr(policy, "value_net", nn.Linear(64, 1, bias=False)), "not a Linear with a bias"),
    ],
    ids=["hook", "action", "value"],
)
def test_a_policy_that_was_changed_stays_in_lockstep(change: Callable[[Any], Any], reason: str) -> None:
    env = NativeVecEnv("Hopper-v5", n_envs=2)
    model = HPPO("MlpPolicy", env, n_steps=16, batch_size=32, n_epochs=1, device="cpu")
    assert why_lockstep(model.policy, env, model.rollout_buffer) is None
    change(model.policy)
    assert reason in str(why_lockstep(model.policy, env, model.rollout_buffer))
    model.learn(32)
    env.close()


@pytest.mark.parametrize(
    ("make_env", "kwargs", "reason"),
    [
        (lambda: make_vec_env("Hopper-v5", n_envs=2), {}, "the environments are a DummyVecEnv, not a NativeVecEnv"),
        (
            lambda: VecCheckNan(NativeVecEnv("Hopper-v5", n_envs=2)),
            {},
            "the environments are a VecCheckNan around a NativeVecEnv",
        ),
        (
            lambda: NativeVecEnv("Hopper-v5", n_envs=2),
            {"policy_kwargs": {"activation_fn": nn.Softplus}},
            "the policy's networks have a Softplus",
        ),
        (
            lambda: NativeVecEnv("Hopper-v5", n_envs=2),
            {"rollout_buffer_class": CountingBuffer},
            "the rollout buffer is a CountingBuffer with an `add` of its own",
        ),
    ],
    ids=["dummy", "wrapper", "activation", "buffer"],
)
def test_the_reason_is_said(
    make_env: Callable[[], Any], kwargs: dict[str, Any], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    env = make_env()
    with pytest.raises(ValueError, match=f"HPPO: rollout: 'native' is not possible: {reason}"):
        HPPO("MlpPolicy", env, rollout="native", device="cpu", **kwargs)
    model = HPPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1, device="cpu", verbose=1, **kwargs)
    model.learn(128)
    assert capsys.readouterr().out.count(f"Rollouts in lock-step, since {reason}") == 1
    HPPO("MlpPolicy", env, n_steps=32, batch_size=32, device="cpu", rollout="lockstep", verbose=1, **kwargs)
    assert "lock-step" not in capsys.readouterr().out
    env.close()


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="HPPO: rollout: expected 'auto', 'native' or 'lockstep', got 'fast'"):
        HPPO("MlpPolicy", "Pendulum-v1", rollout="fast")
    for shard_size in (0, 2.5):
        with pytest.raises(ValueError, match=f"HPPO: shard_size: expected a whole number >= 1 or None, got {shard_size}"):
            HPPO("MlpPolicy", "Pendulum-v1", shard_size=shard_size)  # type: ignore[arg-type]


def test_auto_is_native_where_it_can_be() -> None:
    model = _learn(_make("auto", env={"hold": HOLD}), 1)
    assert differences(model, _learn(_make("native", env={"hold": HOLD}), 1)) == []
    assert model.n_noise_decisions == 32
    native_cls: Any = NativeVecEnv
    wrapped = make_vec_env("Hopper-v5", n_envs=2, vec_env_cls=native_cls, wrapper_class=ActionHold)
    assert HPPO("MlpPolicy", wrapped, rollout="native", device="cpu", n_steps=32).learn(64).n_noise_decisions == 32


# --- when things go wrong ---------------------------------------------------------------------------------------------


class _Break(BaseCallback):
    """Puts environment 1 into a state that no integrator survives, before every rollout."""

    def _on_rollout_start(self) -> None:
        self.training_env.env_method("set_state", np.array([0, 1.25, 0, 0, 0, 0]), np.full(6, 1e30), indices=[1])

    def _on_step(self) -> bool:
        return True


def test_a_simulation_that_breaks_down_is_reset_counted_and_logged() -> None:
    model, rows = _make(norm={}), Records()
    model.set_logger(Logger(None, [rows]))
    recorder = _Recorder()
    with pytest.warns(RuntimeWarning, match=r"Hopper-v5, environment 1 \(seed 4, step 1\): the simulation broke down"):
        _learn(model, 1, callback=[_Break(), recorder])
    assert rows.rows[0]["rollout/n_unstable"] == 1
    assert 0 < rows.rows[0]["time/handover_ms"] < 100
    assert [info.get("unstable") for info in recorder.steps[0]["infos"]] == [None, True] + [None] * 6
    assert all(np.isfinite(array).all() for array in training_state(model).values())


@pytest.mark.filterwarnings("ignore:.*broke down, and was reset:RuntimeWarning")
def test_too_many_in_a_row_stop_the_training() -> None:
    model = _make(n_envs=2, n_steps=1, batch_size=2)
    message = rf"environment 1,.* seed 4, step 10: the simulation broke down in {MAX_UNSTABLE_IN_A_ROW} episodes in a row"
    with pytest.raises(NativeError, match=message):
        _learn(model, 50, callback=_Break())
    assert model.num_timesteps == 2 * (MAX_UNSTABLE_IN_A_ROW - 1)


def test_too_many_in_a_row_stop_the_rollout() -> None:
    """No state that is 1e20 away from the model's survives a step, so every reset leads to the next breakdown."""
    model = _make(n_envs=3, n_steps=500, shard_size=1, env={"env_kwargs": {"reset_noise_scale": 1e20}})
    message = r"environment 0, .*, step 9 of the rollout: seed 3, step 10: the simulation broke down in 10 episodes in a row"
    with pytest.raises(NativeError, match=message):
        _learn(model, 1)
    assert model.num_timesteps == 0
    # The environment stood still after that, and so did those that had the same fate.
    assert [event.n_total_steps for event in model.env._engine.instabilities()] == [10, 10, 10]


def test_a_failing_worker_names_environment_and_step() -> None:
    model = _make(n_envs=4, shard_size=2)
    good = {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}
    model.policy.action_net.weight.data.fill_(np.nan)
    with pytest.raises(NativeError, match="environment 0, step 0 of its episode, step 0 of the rollout: the policy gave"):
        _learn(model, 1)
    model.policy.load_state_dict(good)
    assert np.isfinite(_learn(model, 1).rollout_buffer.actions).all()


def test_arrays_of_another_kind_are_refused() -> None:
    engine: Any = NativeVecEnv("Hopper-v5", n_envs=2)._engine
    shapes = {"observations": (4, 2, 11), "actions": (4, 2, 3), "rewards": (4, 2), "log_probs": (4, 2), "values": (4, 2)}
    arrays = {name: np.zeros(shape, np.float64 if name == "observations" else np.float32) for name, shape in shapes.items()}
    arrays["n_held"] = np.zeros((4, 2), np.int64)
    settings: dict[str, Any] = {"shard_size": 2, "n_hold": None, "gamma": 1.0, "normalization": None}
    settings |= {"noise_seed": 0, "first_decision": 0}
    settings |= {"n_unstable_in_a_row": np.zeros(2, np.int64), "max_unstable_in_a_row": 10}
    for name, array, message in (
        ("actions", np.zeros((4, 2, 3)), "actions: expected float32, got float64"),
        ("rewards", np.zeros((2, 4), np.float32), r"rewards: expected the shape \(4, 2\), got \(2, 4\)"),
        ("values", np.zeros((2, 4), np.float32).T, "values: expected a C-contiguous array"),
    ):
        with pytest.raises(ValueError, match=message):
            engine.collect_rollout(None, **{**settings, **arrays, name: array})
    other = _make(env_id="HalfCheetah-v5", n_envs=2)
    with pytest.raises(ValueError, match="the policy is for 17 observations and 6 actions, the task has 11 and 3"):
        engine.collect_rollout(native_policy(other.policy), **settings, **arrays)


def test_a_loaded_model_does_not_draw_the_same_noise_again(tmp_path: Path) -> None:
    model = HPPO("MlpPolicy", NativeVecEnv("Hopper-v5", 2), n_steps=16, batch_size=16, seed=3, device="cpu").learn(32)
    model.save(tmp_path / "model")
    loaded = HPPO.load(tmp_path / "model", env=NativeVecEnv("Hopper-v5", 2), device="cpu")
    assert (loaded.noise_seed, loaded.n_noise_decisions) == (model.noise_seed, 16)
    loaded.set_random_seed(4)  # who asks for other random numbers gets them
    assert (loaded.noise_seed, loaded.n_noise_decisions) == (None, 0)
