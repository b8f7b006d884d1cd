"""Time-aware targets against their definition, and against SB3's where the two must agree."""

from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_hrl.hppo import HPPO
from sb3_hrl.rollout import TimeAwareDictRolloutBuffer, TimeAwareRolloutBuffer
from sb3_hrl.wrappers import ActionHold
from tests.envs import ScriptedEnv
from tests.reference.semi_markov import discounted_hold_reward, gae

N_STEPS, N_ENVS, GAMMA, GAE_LAMBDA = 40, 3, 0.97, 0.9
OBS_SPACE, ACTION_SPACE = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))


def _filled(buffer_class: type[RolloutBuffer], obs_space: spaces.Space = OBS_SPACE) -> tuple[Any, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    buffer: Any = buffer_class(N_STEPS, obs_space, ACTION_SPACE, gamma=GAMMA, gae_lambda=GAE_LAMBDA, n_envs=N_ENVS)
    buffer.rewards[:] = rng.normal(size=(N_STEPS, N_ENVS))
    buffer.values[:] = rng.normal(size=(N_STEPS, N_ENVS))
    buffer.episode_starts[:] = rng.random((N_STEPS, N_ENVS)) < 0.15
    return buffer, rng.normal(size=N_ENVS).astype(np.float32), np.array([True, False, False])


def _oracle(buffer: Any, last_values: np.ndarray, dones: np.ndarray, n_held: np.ndarray) -> np.ndarray:
    ends = np.concatenate((buffer.episode_starts[1:], dones[None]))
    values = np.concatenate((buffer.values, last_values[None]))
    return np.stack(
        [gae(buffer.rewards[:, e], n_held[:, e], values[:, e], ends[:, e], GAMMA, GAE_LAMBDA) for e in range(N_ENVS)], axis=1
    )


def test_gae_is_the_semi_markov_definition() -> None:
    buffer, last_values, dones = _filled(TimeAwareRolloutBuffer)
    buffer.n_held[:] = np.random.default_rng(1).integers(1, 9, size=(N_STEPS, N_ENVS))
    n_held = buffer.n_held.copy()
    buffer.compute_returns_and_advantage(th.as_tensor(last_values), dones)
    expected = _oracle(buffer, last_values, dones, n_held)
    np.testing.assert_allclose(buffer.advantages, expected, atol=2e-6)
    np.testing.assert_array_equal(buffer.returns, buffer.advantages + buffer.values)
    # The naive discount, as a counter-check, is far off.
    assert np.abs(buffer.advantages - _oracle(buffer, last_values, dones, np.ones_like(n_held))).max() > 0.05


@pytest.mark.parametrize(
    ("ours", "theirs", "obs_space"),
    [
        (TimeAwareRolloutBuffer, RolloutBuffer, OBS_SPACE),
        (TimeAwareDictRolloutBuffer, DictRolloutBuffer, spaces.Dict({"a": OBS_SPACE})),
    ],
)
def test_one_step_decisions_give_the_bits_of_sb3(ours: Any, theirs: Any, obs_space: spaces.Space) -> None:
    (buffer, last_values, dones), (expected, _, _) = _filled(ours, obs_space), _filled(theirs, obs_space)
    for filled in (buffer, expected):
        filled.compute_returns_and_advantage(th.as_tensor(last_values), dones)
    assert np.array_equal(buffer.advantages, expected.advantages)
    assert np.array_equal(buffer.returns, expected.returns)
    assert buffer.advantages.dtype == expected.advantages.dtype == np.float32
    # One decision of two steps, as a counter-check, changes them.
    buffer.n_held[5, 1] = 2
    buffer.compute_returns_and_advantage(th.as_tensor(last_values), dones)
    assert not np.array_equal(buffer.advantages, expected.advantages)


def test_without_values_the_return_is_the_discounted_sum_over_steps() -> None:
    """Cutting an episode into decisions of any length must not change what its first state is worth."""
    rng = np.random.default_rng(2)
    step_rewards, lengths = rng.normal(size=30), [4, 1, 7, 9, 2, 7]
    buffer: Any = TimeAwareRolloutBuffer(len(lengths), OBS_SPACE, ACTION_SPACE, gamma=GAMMA, gae_lambda=1.0)
    bounds = np.cumsum([0, *lengths])
    for t, n_held in enumerate(lengths):
        buffer.rewards[t] = discounted_hold_reward(list(step_rewards[bounds[t] : bounds[t + 1]]), GAMMA)
        buffer.n_held[t] = n_held
    buffer.compute_returns_and_advantage(th.zeros(1), np.array([True]))
    assert buffer.returns[0, 0] == pytest.approx(discounted_hold_reward(list(step_rewards), GAMMA), abs=1e-5)


@pytest.mark.parametrize("terminated", [False, True])
@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("hold_steps", [1, 3])
def test_only_a_pure_truncation_bootstraps_and_both_cut(terminated: bool, truncated: bool, hold_steps: int) -> None:
    """The four ways an episode can (not) end, with and without a hold."""
    n_decisions, gamma = 4, 0.9

    def make_env() -> ActionHold:
        # The episode ends in the middle of its second hold (or at the end of its fourth step without one).
        n_env_steps = 4 if terminated or truncated else 1000
        return ActionHold(ScriptedEnv(n_env_steps, terminated, truncated), hold_seconds=0.01 * hold_steps)

    model = HPPO("MlpPolicy", DummyVecEnv([make_env]), n_steps=n_decisions, batch_size=4, gamma=gamma, seed=0, device="cpu")
    _, callback = model._setup_learn(n_decisions)
    assert model.env is not None
    model.collect_rollouts(model.env, callback, model.rollout_buffer, n_decisions)
    buffer: Any = model.rollout_buffer

    end = 3 if hold_steps == 1 else 1  # the decision that ends the episode
    step_rewards = [[1], [2], [3], [4]] if hold_steps == 1 else [[1, 2, 3], [4]]
    if not (terminated or truncated) and hold_steps > 1:
        step_rewards[1] = [4, 5, 6]
    expected = discounted_hold_reward([float(reward) for reward in step_rewards[end]], gamma)
    if truncated and not terminated:
        terminal_obs = th.tensor([[4.0, 0.0]])
        with th.no_grad():
            value = model.policy.predict_values(terminal_obs).item()
        assert abs(value) > 1e-3  # else the bootstrap could not be seen
        expected += gamma ** len(step_rewards[end]) * value
    assert buffer.rewards[end, 0] == pytest.approx(expected, rel=1e-6)
    assert buffer.n_held[end, 0] == len(step_rewards[end])
    if (terminated or truncated) and hold_steps > 1:
        # Cut: what the next episode brings does not reach back over the end.
        assert buffer.episode_starts[end + 1, 0] == 1
        assert buffer.advantages[end, 0] == pytest.approx(buffer.rewards[end, 0] - buffer.values[end, 0], rel=1e-6)


def test_a_held_truncation_is_discounted_by_its_length() -> None:
    """The cut hold lasted two steps: gamma**2, not gamma (SB3's) nor gamma**3 (the whole hold's)."""
    gamma = 0.5

    def make_env() -> ActionHold:
        return ActionHold(ScriptedEnv(5, ends_terminated=False, ends_truncated=True), hold_seconds=0.03)

    model = HPPO("MlpPolicy", DummyVecEnv([make_env]), n_steps=2, batch_size=2, gamma=gamma, seed=0, device="cpu")
    _, callback = model._setup_learn(2)
    assert model.env is not None
    model.collect_rollouts(model.env, callback, model.rollout_buffer, 2)
    with th.no_grad():
        value = model.policy.predict_values(th.tensor([[5.0, 0.0]])).item()
    bootstrapped = model.rollout_buffer.rewards[1, 0] - discounted_hold_reward([4.0, 5.0], gamma)
    assert bootstrapped == pytest.approx(gamma**2 * value, rel=1e-4)
    assert abs(gamma * value - gamma**2 * value) > 1e-3
