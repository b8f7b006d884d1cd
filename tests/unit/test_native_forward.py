"""Lock-step with a native forward is SB3's, bit for bit."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import VecNormalize
from torch import nn

from sb3_hrl.hppo import HPPO
from sb3_hrl.rollout import algorithm
from sb3_hrl.rollout.native_forward import native_forward
from sb3_hrl.rollout.native_rollout import why_policy_is_not_native

N_OBS, N_ACTIONS = 17, 6
BOX = spaces.Box(-np.inf, np.inf, (N_OBS,), np.float64)
ACTIONS = spaces.Box(-1.0, 1.0, (N_ACTIONS,), np.float32)


def _make_policy(**kwargs: Any) -> ActorCriticPolicy:
    th.manual_seed(0)
    policy = ActorCriticPolicy(BOX, ACTIONS, lambda _: 3e-4, **kwargs)
    policy.set_training_mode(False)
    return policy


def _forward(policy: ActorCriticPolicy, obs: th.Tensor, **kwargs: Any) -> tuple[bytes, ...]:
    th.manual_seed(1)
    with th.no_grad():
        return tuple(tensor.numpy().tobytes() for tensor in (*policy(obs, **kwargs), th.randn(1)))


@pytest.mark.parametrize("n_rows", [1, 3, 16])
@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"net_arch": [512, 512, 512]},
        {"net_arch": [], "log_std_init": -1.0},
        {"net_arch": {"pi": [32], "vf": [20, 7]}, "activation_fn": nn.ELU},
        {"share_features_extractor": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("n_threads", [1, 2])
def test_the_bits_are_sb3s(kwargs: dict[str, Any], n_rows: int, n_threads: int) -> None:
    policy, before = _make_policy(**kwargs), th.get_num_threads()
    obs = th.as_tensor(np.random.default_rng(0).normal(size=(n_rows, N_OBS)))
    try:
        th.set_num_threads(n_threads)
        expected = _forward(policy, obs)
        with native_forward(policy):
            assert "forward" in vars(policy)
            assert [_forward(policy, obs) for _ in range(2)] == [expected, expected]
            # What is not a rollout's question is SB3's to answer.
            assert _forward(policy, obs, deterministic=True) != expected
            assert policy(obs)[1].requires_grad
        with th.no_grad():
            policy.log_std.add_(0.1)
        with native_forward(policy):
            actual = [_forward(policy, obs) for _ in range(2)][1]
    finally:
        th.set_num_threads(before)
    assert "forward" not in vars(policy)
    assert actual == _forward(policy, obs) != expected


def test_what_is_not_a_number_is_sb3s_error() -> None:
    policy = _make_policy()
    obs = th.full((2, N_OBS), th.nan)
    with native_forward(policy), th.no_grad():
        policy(th.zeros(2, N_OBS))
        with pytest.raises(ValueError, match="Expected parameter loc"):
            policy(obs)
    assert "forward" not in vars(policy)


@pytest.mark.parametrize("shape", [(2, 3), (3, 1), ()])
def test_actions_of_any_shape(shape: tuple[int, ...]) -> None:
    policy = ActorCriticPolicy(BOX, spaces.Box(-1.0, 1.0, shape, np.float32), lambda _: 3e-4)
    with native_forward(policy), th.no_grad():
        shapes = [[tensor.shape for tensor in policy(th.zeros(4, N_OBS))] for _ in range(2)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    "obs",
    [
        th.randn(N_OBS, 5).T,
        th.randn(5, 2 * N_OBS)[:, :N_OBS],
        th.randn(5 * N_OBS + 1)[1:].reshape(5, N_OBS),
        th.randn(5, N_OBS).bfloat16(),
        th.full((5, N_OBS), 1e38),
    ],
    ids=["transposed", "sliced", "not aligned", "bfloat16", "infinite actions"],
)
def test_observations_of_any_kind(obs: th.Tensor) -> None:
    policy = _make_policy(activation_fn=nn.ReLU)
    expected = _forward(policy, obs)
    with native_forward(policy):
        assert [_forward(policy, obs) for _ in range(2)] == [expected, expected]


def test_a_standard_deviation_of_zero_is_sb3s_error() -> None:
    policy = _make_policy(log_std_init=-200.0)
    with native_forward(policy), th.no_grad(), pytest.raises(ValueError, match="Expected parameter scale"):
        policy(th.zeros(2, N_OBS))


def _fill(policy: ActorCriticPolicy) -> None:
    with th.no_grad():
        policy.log_std.fill_(-0.5)


def _move(policy: ActorCriticPolicy) -> None:
    policy.load_from_vector(policy.parameters_to_vector() * 1.05)


def _exchange(policy: ActorCriticPolicy) -> None:
    policy.mlp_extractor.policy_net[1] = nn.ReLU()


def _hook(policy: ActorCriticPolicy) -> None:
    policy.action_net.register_forward_hook(lambda module, inputs, output: output * 0.5)


def _copy(policy: ActorCriticPolicy) -> None:
    for other in (copy.deepcopy(policy), cloudpickle.loads(cloudpickle.dumps(policy))):
        assert other.forward.__self__ is other  # type: ignore[union-attr]
        assert other(th.zeros(2, 3))[0].shape == (2, 1)
        assert why_policy_is_not_native(other) is None


@pytest.mark.parametrize(("change", "n_before"), [(_fill, 2), (_move, 2), (_copy, 2), (_exchange, 0), (_hook, 0), (_fill, 0)])
def test_callbacks_may_change_the_policy(change: Callable[[ActorCriticPolicy], None], n_before: int) -> None:
    """At a rollout's start anything, and parameters at any time."""

    class Change(BaseCallback):
        n_steps = 0

        def _on_rollout_start(self) -> None:
            if self.num_timesteps > 0:
                self.maybe()

        def _on_step(self) -> bool:
            self.n_steps += 1
            self.maybe()
            return True

        def maybe(self) -> None:
            if self.n_steps == 16 + n_before:
                change(self.model.policy)  # type: ignore[arg-type]

    def train(algo: type[PPO]) -> list[bytes]:
        model = algo("MlpPolicy", make_vec_env("Pendulum-v1", 3, seed=5), n_steps=16, batch_size=24, seed=3, device="cpu")
        model.learn(96, Change())
        return [array.tobytes() for array in (model.rollout_buffer.actions, model.rollout_buffer.log_probs)]

    assert train(HPPO) == train(PPO)


def test_other_policies_stay_as_they_are() -> None:
    for policy in (_make_policy(use_sde=True), ActorCriticPolicy(BOX, spaces.Discrete(3), lambda _: 3e-4)):
        with native_forward(policy):
            assert "forward" not in vars(policy)


@pytest.mark.parametrize("is_normalized", [False, True])
def test_training_in_lockstep_is_sb3s(is_normalized: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over an ordinary VecEnv, too; and the native forward is what makes it."""

    def train(algo: type[PPO], **kwargs: Any) -> PPO:
        env = make_vec_env("Pendulum-v1", 3, seed=5)
        venv = VecNormalize(env) if is_normalized else env
        model = algo("MlpPolicy", venv, n_steps=16, batch_size=24, n_epochs=2, seed=3, device="cpu", **kwargs)
        return model.learn(96)

    def numbers(model: PPO) -> list[bytes]:
        buffer = model.rollout_buffer
        arrays = [buffer.actions, buffer.values, buffer.log_probs, buffer.returns]
        return [array.tobytes() for array in (*arrays, *(tensor.numpy() for tensor in model.policy.state_dict().values()))]

    assert numbers(train(HPPO)) == numbers(train(PPO))
    n_calls = 0
    original = ActorCriticPolicy.forward

    def count(*args: Any, **kwargs: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        return original(*args, **kwargs)

    monkeypatch.setattr(ActorCriticPolicy, "forward", count)
    train(HPPO)
    assert n_calls == 2  # the first of each rollout
    monkeypatch.setattr(algorithm, "native_forward", nullcontext)
    train(HPPO)
    assert n_calls == 2 + 32
