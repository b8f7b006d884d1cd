"""V-trace against its definition, and against what it must reduce to."""

from typing import Any

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from sb3_hrl.rollout import TimeAwareRolloutBuffer
from sb3_hrl_plugins.impala.vtrace import VTrace, vtrace
from tests.reference.semi_markov import discounted_hold_reward
from tests.reference.vtrace import Trajectory, advantage, target

GAMMA = 0.97


def _trajectories(seed: int, n_steps: int, n_envs: int, end_probability: float = 0.15) -> list[Trajectory]:
    rng = np.random.default_rng(seed)
    trajectories = []
    for _ in range(n_envs):
        ends = rng.random(n_steps) < end_probability
        trajectories.append(
            Trajectory(
                rewards=rng.normal(size=n_steps),
                gammas=GAMMA ** rng.integers(1, 5, size=n_steps),
                ratios=np.exp(rng.normal(size=n_steps)),
                values=rng.normal(size=n_steps + 1),
                ends=ends,
                end_values=np.where(ends & (rng.random(n_steps) < 0.5), rng.normal(size=n_steps), 0.0),
            )
        )
    return trajectories


def _run(trajectories: list[Trajectory], **kwargs: float) -> VTrace:
    """As IMPALA calls it: an end is a discount of 0, and what a time limit cut off is in the reward."""

    def stack(arrays: list[np.ndarray]) -> th.Tensor:
        return th.as_tensor(np.stack(arrays, axis=-1))

    return vtrace(
        stack([np.log(t.ratios) for t in trajectories]),
        stack([t.gammas * ~t.ends for t in trajectories]),
        stack([t.rewards + t.gammas * t.end_values for t in trajectories]),
        stack([t.values[:-1] for t in trajectories]),
        th.as_tensor([t.values[-1] for t in trajectories]),
        **kwargs,
    )


def _oracle(
    trajectories: list[Trajectory], rho_bar: float, c_bar: float, rho_bar_pg: float, trace_lambda: float = 1.0
) -> VTrace:
    steps = range(len(trajectories[0].rewards))
    targets = [[target(t, s, rho_bar, c_bar, trace_lambda) for t in trajectories] for s in steps]
    advantages = [[advantage(t, s, rho_bar, c_bar, rho_bar_pg, trace_lambda) for t in trajectories] for s in steps]
    return VTrace(th.as_tensor(targets, dtype=th.float64), th.as_tensor(advantages, dtype=th.float64))


bars = st.sampled_from([0.3, 1.0, 2.5, float("inf")])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_steps=st.integers(1, 14),
    end_probability=st.sampled_from([0.0, 0.2, 1.0]),
    rho_bar=bars,
    c_bar=bars,
    rho_bar_pg=bars,
    trace_lambda=st.sampled_from([0.0, 0.7, 1.0]),
)
def test_it_is_the_sum_of_the_paper(seed: int, n_steps: int, end_probability: float, **kwargs: float) -> None:
    trajectories = _trajectories(seed, n_steps, n_envs=3, end_probability=end_probability)
    expected, got = _oracle(trajectories, **kwargs), _run(trajectories, **kwargs)
    np.testing.assert_allclose(got.targets, expected.targets, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(got.advantages, expected.advantages, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        {"rho_bar": 2.0},
        {"c_bar": 2.0},
        {"rho_bar_pg": 2.0},
        {"trace_lambda": 0.9},
    ],
)
def test_every_bar_matters(change: dict[str, float]) -> None:
    """A bar that is mistaken for another one would be seen."""
    trajectories = _trajectories(0, n_steps=12, n_envs=3)
    base = {"rho_bar": 1.0, "c_bar": 1.0, "rho_bar_pg": 1.0}
    expected, changed = _oracle(trajectories, **base), _run(trajectories, **{**base, **change})
    assert not np.allclose(changed.advantages, expected.advantages, atol=1e-3)
    assert np.allclose(changed.targets, expected.targets) == ("rho_bar_pg" in change)


def test_the_policy_gradient_looks_at_the_target_not_at_the_value() -> None:
    """r + gamma V(x_{s+1}), the variant that the paper found worse, is far off."""
    (trajectory,) = _trajectories(1, n_steps=10, n_envs=1, end_probability=0.0)
    got = _run([trajectory]).advantages[:, 0].numpy()
    naive = np.minimum(trajectory.ratios, 1) * (
        trajectory.rewards + trajectory.gammas * trajectory.values[1:] - trajectory.values[:-1]
    )
    assert np.abs(got - naive)[:-1].max() > 0.1
    assert got[-1] == pytest.approx(naive[-1])  # behind the last step there is only V


def test_ratios_of_one_give_the_discounted_sum_of_n_steps() -> None:
    (trajectory,) = _trajectories(2, n_steps=9, n_envs=1, end_probability=0.0)
    trajectory = trajectory._replace(ratios=np.ones(9), gammas=np.full(9, GAMMA))
    got = _run([trajectory])
    expected = discounted_hold_reward([*trajectory.rewards, float(trajectory.values[-1])], GAMMA)
    assert got.targets[0, 0].item() == pytest.approx(expected)
    assert got.advantages[0, 0].item() == pytest.approx(expected - trajectory.values[0])
    # Another ratio, as a counter-check, changes it.
    assert _run([trajectory._replace(ratios=np.full(9, 0.9))]).targets[0, 0].item() != pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("gae_lambda", [1.0, 0.9])
def test_ratios_of_one_give_gae(gae_lambda: float) -> None:
    """SB3's own arithmetic (with our discounts): another one that V-trace must agree with."""
    n_steps, n_envs = 30, 3
    trajectories = [t._replace(ratios=np.ones(n_steps)) for t in _trajectories(3, n_steps, n_envs)]
    box = spaces.Box(-1, 1, (2,))
    buffer: Any = TimeAwareRolloutBuffer(n_steps, box, box, gamma=GAMMA, gae_lambda=gae_lambda, n_envs=n_envs)
    for e, t in enumerate(trajectories):
        buffer.rewards[:, e] = t.rewards + t.gammas * t.end_values
        buffer.values[:, e] = t.values[:-1]
        buffer.episode_starts[1:, e] = t.ends[:-1]
        buffer.n_held[:, e] = np.rint(np.log(t.gammas) / np.log(GAMMA))
    last_values = th.as_tensor([t.values[-1] for t in trajectories], dtype=th.float32)
    buffer.compute_returns_and_advantage(last_values, np.array([t.ends[-1] for t in trajectories]))
    got = _run(trajectories, trace_lambda=gae_lambda)
    np.testing.assert_allclose(got.advantages, buffer.advantages, atol=2e-5)
    np.testing.assert_allclose(got.targets, buffer.returns, atol=2e-5)
    other = _run(trajectories, trace_lambda=gae_lambda - 0.1)
    assert np.abs(other.advantages.numpy() - buffer.advantages).max() > 0.01


def test_nothing_reaches_back_over_the_end_of_an_episode() -> None:
    (trajectory,) = _trajectories(4, n_steps=8, n_envs=1, end_probability=0.0)
    ends = np.arange(8) == 4
    late = np.where(np.arange(8) > 4, 100.0, 0.0)

    def before(ends: np.ndarray, rewards: np.ndarray) -> VTrace:
        got = _run([trajectory._replace(ends=ends, rewards=rewards)])
        return VTrace(got.targets[:5], got.advantages[:5])

    cut, disturbed = before(ends, trajectory.rewards), before(ends, trajectory.rewards + late)
    assert th.equal(cut.targets, disturbed.targets)
    assert th.equal(cut.advantages, disturbed.advantages)
    # Without the end, as a counter-check, it does.
    no_end = np.zeros(8, dtype=bool)
    assert not th.equal(before(no_end, trajectory.rewards).targets, before(no_end, trajectory.rewards + late).targets)


SHAPES = {"log_ratios": (4, 2), "discounts": (4, 2), "rewards": (4, 2), "values": (4, 2), "last_values": (2,)}


def test_no_gradient_flows_through_the_targets() -> None:
    inputs: Any = {name: th.randn(shape, requires_grad=True) for name, shape in SHAPES.items()}
    got = vtrace(**inputs)
    assert not got.targets.requires_grad
    assert not got.advantages.requires_grad


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("log_ratios", (4, 1), r"log_ratios: expected shape \[4, 2\], got \[4, 1\]"),
        ("discounts", (2, 4), r"discounts: expected shape \[4, 2\], got \[2, 4\]"),
        ("rewards", (4, 2, 1), r"rewards: expected shape \[4, 2\], got \[4, 2, 1\]"),
        ("last_values", (1, 2), r"last_values: expected shape \[2\], got \[1, 2\]"),
        ("values", (0, 2), r"values: expected shape \[T, B\] with T >= 1, got \[0, 2\]"),
    ],
)
def test_shapes_are_checked(name: str, shape: tuple[int, ...], message: str) -> None:
    inputs: Any = {name: th.zeros(shape) for name, shape in {**SHAPES, name: shape}.items()}
    with pytest.raises(ValueError, match=f"vtrace: {message}"):
        vtrace(**inputs)
