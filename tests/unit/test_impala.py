"""IMPALA: one update against the paper's loss, and what its arguments do."""

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.envs import FakeImageEnv, IdentityEnv, IdentityEnvBox
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from sb3_hrl.vec_env import NativeVecEnv
from sb3_hrl.wrappers import ActionHold
from sb3_hrl_plugins.impala import IMPALA
from tests.envs import ScriptedEnv
from tests.records import Records
from tests.reference.vtrace import Trajectory, advantage, target

GAMMA = 0.9
KWARGS: dict[str, Any] = {"n_steps": 8, "gamma": GAMMA, "seed": 0, "device": "cpu"}
BARS = {"rho_bar": 1.1, "c_bar": 0.9, "rho_bar_pg": 1.3}
SGD = {"optimizer_class": th.optim.SGD, "net_arch": [8]}


def _flat_parameters(model: IMPALA) -> th.Tensor:
    return th.nn.utils.parameters_to_vector(model.policy.parameters()).detach().clone()


def _rollout(model: IMPALA) -> Any:
    """Collect one rollout; its buffer."""
    _, callback = model._setup_learn(model.n_steps * model.n_envs)
    assert model.env is not None
    model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
    return model.rollout_buffer


# --- one update, against the paper's loss

# Episodes of three lengths that end in the ways an episode can: (length, terminated, truncated).
ENDS = [(5, True, False), (4, False, True), (7, False, True), (50, True, False)]
EXPECTED_TIMEOUTS = {1: 4, 2: 7}  # environment: step of the cut


def _ending_envs(is_discrete: bool, hold_seconds: float) -> VecEnv:
    def make(n_steps: int, terminated: bool, truncated: bool) -> gym.Env:
        return ActionHold(ScriptedEnv(n_steps, terminated, truncated, is_discrete=is_discrete), hold_seconds=hold_seconds)

    return DummyVecEnv([partial(make, *ends) for ends in ENDS])


def _paper_loss(model: IMPALA, buffer: Any, end_values: np.ndarray, envs: slice) -> th.Tensor:
    """The loss of the paper, as a mean, one row of the network at a time, with the targets from their sums."""
    losses = []
    last_obs: Any = model._last_obs
    for e in range(*envs.indices(len(ENDS))):
        rows = [*buffer.observations[:, e], last_obs[e]]
        values, log_probs, entropies = [], [], []
        for t, obs in enumerate(rows):
            action = th.as_tensor(buffer.actions[min(t, model.n_steps - 1), e]).float()
            if isinstance(model.action_space, spaces.Discrete):
                action = action.long()
            value, log_prob, entropy = model.policy.evaluate_actions(th.as_tensor(obs)[None], action)
            values.append(value.flatten())
            log_probs.append(log_prob.flatten())
            entropies.append(entropy)
        ends = np.append(buffer.episode_starts[1:, e], model._last_episode_starts[e]).astype(bool)  # type: ignore[index]
        gammas = GAMMA ** buffer.n_held[:, e]
        trajectory = Trajectory(
            rewards=buffer.rewards[:, e] - gammas * end_values[:, e],
            gammas=gammas,
            ratios=np.exp(th.cat(log_probs[:-1]).detach().numpy() - buffer.log_probs[:, e]),
            values=th.cat(values).detach().numpy().astype(np.float64),
            ends=ends,
            end_values=end_values[:, e],
        )
        assert trajectory.ratios.std() > 0.01  # else V-trace would have nothing to do
        for s in range(model.n_steps):
            weight = advantage(trajectory, s, **BARS, trace_lambda=model.gae_lambda)
            v = target(trajectory, s, BARS["rho_bar"], BARS["c_bar"], model.gae_lambda)
            loss = -weight * log_probs[s] + model.vf_coef * (v - values[s]) ** 2 - model.ent_coef * entropies[s]  # type: ignore[operator]
            losses.append(loss)
    return th.stack(losses).mean()


@pytest.mark.parametrize("is_discrete", [False, True])
@pytest.mark.parametrize("hold_seconds", [0.0, 0.02])
@pytest.mark.parametrize(("batch_size", "gae_lambda"), [(None, 1.0), (16, 0.8)])
def test_an_update_is_the_gradient_of_the_paper_s_loss(
    is_discrete: bool, hold_seconds: float, batch_size: int | None, gae_lambda: float
) -> None:
    """Episode ends of every kind, decisions of one and of two steps, a policy that is not the one that acted."""
    env = _ending_envs(is_discrete, hold_seconds)
    options: dict[str, Any] = {**BARS, "gae_lambda": gae_lambda, "ent_coef": 0.1, "max_grad_norm": 1e9}
    model = IMPALA("MlpPolicy", env, learning_rate=0.01, batch_size=batch_size, policy_kwargs=dict(SGD), **options, **KWARGS)
    buffer = _rollout(model)
    end_values = np.zeros((model.n_steps, len(ENDS)))
    for e, step in EXPECTED_TIMEOUTS.items():
        length = -(-step // 2) if hold_seconds else step  # in decisions; its episodes follow each other
        with th.no_grad():
            end_values[length - 1 :: length, e] = model.policy.predict_values(th.tensor([[float(step), 0.0]])).item()
    with th.no_grad():
        for parameter in model.policy.parameters():
            parameter.add_(0.05 * th.randn_like(parameter))

    start = _flat_parameters(model)
    groups = [slice(0, 4)] if batch_size is None else [slice(0, 2), slice(2, 4)]
    for group in groups:
        model.policy.optimizer.zero_grad()
        _paper_loss(model, buffer, end_values, group).backward()
        model.policy.optimizer.step()
    expected = _flat_parameters(model)
    th.nn.utils.vector_to_parameters(start.clone(), model.policy.parameters())

    model.set_logger(Logger(None, []))
    model.train()
    th.testing.assert_close(_flat_parameters(model), expected, rtol=1e-4, atol=1e-5)
    assert (expected - start).abs().max() > 0.01
    # Another bound, as a counter-check, gives another step.
    th.nn.utils.vector_to_parameters(start.clone(), model.policy.parameters())
    model.c_bar = 0.5
    model.train()
    assert not th.allclose(_flat_parameters(model), expected, rtol=1e-4, atol=1e-5)


# --- arguments


@pytest.mark.parametrize(
    ("batch_size", "n_envs", "expected"),
    [(None, 5, [5]), (8, 5, [1] * 5), (12, 3, [1] * 3), (16, 5, [2, 2, 1]), (20, 4, [2, 2]), (1000, 3, [3])],
)
def test_minibatches_are_whole_unrolls_of_every_environment_once(
    batch_size: int | None, n_envs: int, expected: list[int]
) -> None:
    env = DummyVecEnv([lambda: IdentityEnvBox(ep_length=5)] * n_envs)
    model = IMPALA("MlpPolicy", env, batch_size=batch_size, **KWARGS)
    buffer = _rollout(model)
    batches = list(model._minibatches())
    assert [batch.rewards.shape for batch in batches] == [(8, size) for size in expected]
    assert th.equal(th.cat([batch.rewards for batch in batches], dim=1), th.as_tensor(buffer.rewards))
    assert sum(len(batch.obs) for batch in batches) == (8 + 1) * n_envs


def _logged(**kwargs: Any) -> list[dict[str, Any]]:
    records = Records()
    env = DummyVecEnv([lambda: IdentityEnv(2, ep_length=5)] * 4)
    model = IMPALA("MlpPolicy", env, **{"learning_rate": 0.01, **KWARGS, **kwargs})
    model.set_logger(Logger(None, [records]))
    model.learn(8 * 4 * 5)
    return records.rows[1:]  # the first is dumped before the first update


def test_on_policy_the_weights_are_one_and_off_policy_below() -> None:
    assert all(row["train/vtrace_rho_mean"] == pytest.approx(1, abs=1e-5) for row in _logged())
    for kwargs in ({"batch_size": 8}, {"n_epochs": 3}):
        assert min(row["train/vtrace_rho_mean"] for row in _logged(**kwargs)) < 1 - 1e-3


def test_the_entropy_s_weight_may_be_a_schedule() -> None:
    assert [row["train/ent_coef"] for row in _logged(ent_coef=0.2)] == [0.2] * 4
    expected = pytest.approx([0.16, 0.12, 0.08, 0.04])
    assert [row["train/ent_coef"] for row in _logged(ent_coef="lin_0.2")] == expected
    assert [row["train/ent_coef"] for row in _logged(ent_coef=lambda progress: 0.2 * progress)] == expected
    flat, sharp = (_logged(ent_coef=ent_coef)[-1]["train/entropy_loss"] for ent_coef in (10.0, 0.0))
    assert flat < sharp


def test_the_optimiser_may_be_chosen() -> None:
    def made(**kwargs: Any) -> th.optim.Optimizer:
        return IMPALA("MlpPolicy", "CartPole-v1", **KWARGS, **kwargs).policy.optimizer

    adam = made()
    assert isinstance(adam, th.optim.Adam)
    assert (adam.defaults["fused"], adam.defaults["eps"]) == (True, 1e-5)
    rms_prop = made(use_rms_prop=True, rms_prop_eps=1.6e-5)
    assert isinstance(rms_prop, th.optim.RMSprop)
    assert (rms_prop.defaults["alpha"], rms_prop.defaults["eps"]) == (0.99, 1.6e-5)
    assert isinstance(made(use_rms_prop=True, policy_kwargs=dict(SGD)), th.optim.SGD)
    assert made(policy_kwargs={"optimizer_kwargs": {"eps": 0.1}}).defaults["eps"] == 0.1


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"batch_size": 7}, "batch_size: expected at least one unroll of n_steps 8, or null for all of them, got 7"),
        ({"rho_bar": 0.0}, "rho_bar: expected a number > 0, got 0.0"),
        ({"c_bar": -1.0}, "c_bar: expected a number > 0, got -1.0"),
        ({"n_epochs": 0}, "n_epochs: expected a whole number >= 1, got 0"),
        ({"rollout": "fast"}, "rollout: expected 'auto', 'native' or 'lockstep', got 'fast'"),
        ({"rollout": "native"}, "rollout: 'native' is not possible: the environments are a DummyVecEnv"),
    ],
)
def test_bad_arguments_are_named(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"IMPALA: {message}"):
        IMPALA("MlpPolicy", "CartPole-v1", **{**KWARGS, **kwargs})


class _Spaces(gym.Env):
    """Any pair of spaces; a reward for nothing."""

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        return self.observation_space.sample(), float(self.np_random.random()), bool(self.np_random.random() < 0.2), False, {}


BOX = spaces.Box(-1, 1, (3,), np.float32)


@pytest.mark.parametrize(
    ("observation_space", "action_space", "policy", "kwargs"),
    [
        (spaces.Discrete(4), spaces.Discrete(3), "MlpPolicy", {}),
        (BOX, spaces.MultiDiscrete([2, 3]), "MlpPolicy", {}),
        (BOX, spaces.MultiBinary(3), "MlpPolicy", {}),
        (BOX, BOX, "MlpPolicy", {"use_sde": True, "sde_sample_freq": 4}),
        (BOX, BOX, "MlpPolicy", {"use_sde": True, "policy_kwargs": {"squash_output": True}}),
        (spaces.Dict({"a": BOX, "b": spaces.Discrete(2)}), spaces.Discrete(2), "MultiInputPolicy", {}),
    ],
)
def test_every_space_learns(
    observation_space: spaces.Space, action_space: spaces.Space, policy: str, kwargs: dict[str, Any]
) -> None:
    env = DummyVecEnv([lambda: _Spaces(observation_space, action_space)] * 3)
    model = IMPALA(policy, env, batch_size=16, **KWARGS, **kwargs)
    before = _flat_parameters(model)
    model.learn(48)
    after = _flat_parameters(model)
    assert th.isfinite(after).all()
    assert not th.equal(before, after)


@pytest.mark.parametrize("policy", ["CnnPolicy", "NatureCnnPolicy", "ImpalaCnnPolicy"])
def test_images_learn(policy: str) -> None:
    env = DummyVecEnv([lambda: FakeImageEnv(screen_height=36, screen_width=36, n_channels=3)] * 2)
    model = IMPALA(policy, env, policy_kwargs={"features_extractor_kwargs": {"features_dim": 16}}, **KWARGS)
    before = _flat_parameters(model)
    model.learn(16)
    assert not th.equal(before, _flat_parameters(model))
    # Images stay bytes, and with the two networks of ours their channels stay last.
    obs: Any = model._read_obs(slice(0, 2))
    last_obs: Any = model._last_obs
    assert obs.dtype == th.uint8
    assert obs.shape == (18, 3, 36, 36)
    assert obs.is_contiguous(memory_format=th.channels_last) == (policy != "CnnPolicy")
    assert np.array_equal(obs[:16].reshape(8, 2, 3, 36, 36), model.rollout_buffer.observations)
    assert np.array_equal(obs[16:], last_obs)


def test_native_rollouts() -> None:
    def trained(rollout: str) -> tuple[IMPALA, list[dict[str, Any]]]:
        records = Records()
        env = NativeVecEnv("Hopper-v5", n_envs=4)
        model = IMPALA("MlpPolicy", env, batch_size=16, rollout=rollout, **KWARGS)
        model.set_logger(Logger(None, [records]))
        return model.learn(96), records.rows

    (model, rows), (again, _), (lockstep, lockstep_rows) = trained("native"), trained("native"), trained("lockstep")
    assert all("time/handover_ms" in row for row in rows)
    assert not any("time/handover_ms" in row for row in lockstep_rows)
    assert th.equal(_flat_parameters(model), _flat_parameters(again))
    assert not th.equal(_flat_parameters(model), _flat_parameters(lockstep))  # other random numbers


def test_it_learns_quickly_what_is_easy() -> None:
    env = DummyVecEnv([lambda: IdentityEnv(3, ep_length=20)] * 8)
    model = IMPALA("MlpPolicy", env, learning_rate=0.01, **{**KWARGS, "n_steps": 16})
    model.learn(8 * 16 * 40)
    obs = np.arange(3)
    assert np.array_equal(model.predict(obs, deterministic=True)[0], obs)
