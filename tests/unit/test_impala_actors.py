"""IMPALA with actor processes: what reaches the learner is what happened, and nothing is lost on the way."""

import multiprocessing
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_hrl.actors import ActorVecEnv
from sb3_hrl.checkpoint import Checkpointer, read_metadata
from sb3_hrl.checkpoint.tree import unpack
from sb3_hrl.wrappers import ActionHold
from sb3_hrl_plugins.impala import IMPALA
from tests.envs import ScriptedEnv
from tests.records import Records

KWARGS: dict[str, Any] = {"n_steps": 8, "gamma": 0.9, "learning_rate": 0.01, "seed": 0, "device": "cpu"}


def _scripted(n_steps: int, truncated: bool, hold_seconds: float = 0.0) -> gym.Env:
    return ActionHold(Monitor(ScriptedEnv(n_steps, not truncated, truncated)), hold_seconds=hold_seconds)


class Look(BaseCallback):
    """Checks each rollout before it is learned from."""

    n_rollouts = 0

    def __init__(self, check: Any) -> None:
        super().__init__()
        self.check = check

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        self.n_rollouts += 1
        self.check(self.model, self.n_rollouts)


def _check_scripted(model: Any, n_rollouts: int) -> None:
    """The t-th step is worth t + 1, and the observation before it says t: a torn or shifted row would be seen."""
    buffer = model.rollout_buffer
    t, remaining = buffer.observations[..., 0], buffer.observations[..., 1]
    ends = np.concatenate((buffer.episode_starts[1:], model._last_episode_starts[None])).astype(bool)
    next_obs = np.concatenate((buffer.observations[1:], model._last_obs[None]))
    n_held = np.minimum(2, remaining)  # two steps, or what is left of the episode
    assert np.array_equal(buffer.n_held, n_held)
    assert np.array_equal(ends, remaining <= 2)
    assert np.array_equal(next_obs[..., 0], np.where(ends, 0, t + 2))
    rewards = t + 1 + np.where(n_held == 2, model.gamma * (t + 2), 0)
    # One environment of each actor is cut by a time limit after seven steps.
    is_cut = ends & (t + remaining == 7)
    bootstraps = (buffer.rewards - rewards)[is_cut]
    np.testing.assert_allclose(buffer.rewards[~is_cut], rewards[~is_cut], rtol=1e-6)
    assert is_cut.any()
    with th.no_grad():
        value = model.policy.predict_values(th.tensor([[7.0, 0.0]])).item()
    assert abs(value) > 1e-3
    np.testing.assert_allclose(bootstraps, (model.gamma ** n_held[is_cut]) * value, rtol=1e-3, atol=1e-5)
    if n_rollouts == 1:
        # The weights that acted are the learner's own.
        obs = th.as_tensor(buffer.observations).flatten(0, 1)
        _, log_probs, _ = model.policy.evaluate_actions(obs, th.as_tensor(buffer.actions).flatten(0, 1))
        np.testing.assert_allclose(log_probs.detach().reshape(8, 4), buffer.log_probs, atol=1e-5)


def test_a_rollout_from_actors(tmp_path: Path) -> None:
    envs: Any = [partial(_scripted, 5, False, 0.02), partial(_scripted, 7, True, 0.02)] * 2
    records, look = Records(), Look(_check_scripted)
    model = IMPALA("MlpPolicy", ActorVecEnv(envs), n_actors=2, **KWARGS)
    model.set_logger(Logger(None, [records]))
    model.learn(8 * 4 * 6, callback=look)
    assert look.n_rollouts == 6
    assert look.n_calls == 8 * 6
    assert model.num_timesteps == 8 * 4 * 6
    assert model.hold_decisions == 8 * 6
    assert model.ep_info_buffer
    assert {(episode["r"], episode["l"]) for episode in model.ep_info_buffer} <= {(15, 5), (28, 7)}
    # What was collected while the learner learned has the weights of an update before, or of a few.
    lags = [row["rollout/policy_lag"] for row in records.rows]
    assert lags[0] == 0
    assert 0 < max(lags) <= 4
    assert all(row["time/bottleneck"] in ("actors", "learner") for row in records.rows)
    assert all(row["time/actor_restarts"] == 0 for row in records.rows)
    assert records.rows[1]["train/vtrace_rho_mean"] == pytest.approx(1, abs=1e-5)
    assert min(row["train/vtrace_rho_mean"] for row in records.rows[1:]) < 1 - 1e-4
    assert multiprocessing.active_children() == []
    # It is a model like any other: it loads without environments, and goes on in this process.
    model.save(tmp_path / "model")
    loaded = IMPALA.load(tmp_path / "model", env=DummyVecEnv(envs), n_actors=None, device="cpu")
    loaded.learn(64)
    assert model._pool is None


def test_statistics_learn_from_every_actor() -> None:
    """Actors normalise with the statistics of their weights; the learner's learn from every trajectory."""
    env: Any = VecNormalize(make_vec_env("Pendulum-v1", 4, seed=0, vec_env_cls=ActorVecEnv))  # type: ignore[arg-type]
    start: dict[str, Any] = {}
    counts: list[float] = []

    def check(model: Any, n_rollouts: int) -> None:
        counts.append(env.obs_rms.count)
        if n_rollouts == 1:
            # The first rollout was normalised with what the learner knew before it: the resets.
            start["obs"] = model.rollout_buffer.observations.copy()

    class NoteStart(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_start(self) -> None:
            if "mean" not in start:
                start["mean"], start["var"] = env.obs_rms.mean.copy(), env.obs_rms.var.copy()

    model = IMPALA("MlpPolicy", env, n_actors=2, **KWARGS)
    model.learn(8 * 4 * 3, callback=[NoteStart(), Look(check)])
    resets = counts[0] - 8 * 4
    assert counts == pytest.approx([resets + 8 * 4 * n for n in (1, 2, 3)])
    raw = start["obs"] * np.sqrt(start["var"] + env.epsilon) + start["mean"]
    np.testing.assert_allclose(np.hypot(raw[..., 0], raw[..., 1]), 1, atol=1e-4)  # cosine and sine, as Pendulum has them
    assert env.ret_rms.count > 8 * 4 * 3


def test_actors_go_on_after_their_last_trajectory(tmp_path: Path) -> None:
    """The queue is dropped; environments, and what they showed last, are those after what the learner had learned from."""
    n_envs, length = 4, 200  # of every episode

    def make_env(seed: int) -> Any:
        return VecNormalize(make_vec_env("Pendulum-v1", n_envs, seed=seed, vec_env_cls=ActorVecEnv), norm_obs=False)  # type: ignore[arg-type]

    firsts: dict[int, Any] = {}
    ends: list[tuple[int, int]] = []

    def look(model: Any, n_rollouts: int) -> None:
        for trajectory in model._pool._gathered:
            firsts.setdefault(trajectory.actor, (trajectory.sequence, trajectory.obs[0].copy()))
            steps = [(8 * trajectory.sequence + step + 1, info["episode"]["l"]) for step, _, info in trajectory.infos]
            ends.extend(steps)

    model = IMPALA("MlpPolicy", make_env(0), n_actors=2, **KWARGS)
    model.learn(8 * n_envs * 20, callback=[Look(look), Checkpointer(tmp_path, save_freq=8 * n_envs)])
    cut = tmp_path / f"rl_model_{8 * n_envs * 12}_steps.zip"
    assert "the queue" in read_metadata(cut)["missing"][0]
    firsts.clear()
    ends.clear()
    loaded: Any = IMPALA.load(cut, env=make_env(7), device="cpu")
    states = loaded._rest["envs"]["base"]["states"]
    with pytest.warns(UserWarning, match="not exactly; what restarts: the queue: trajectories that actors had collected"):
        loaded.learn(8 * n_envs * 40, callback=Look(look), reset_num_timesteps=False)
    assert sorted(firsts) == [0, 1]
    for actor, state in enumerate(states):
        sequence, obs = firsts[actor]
        _, is_new, last_obs, _ = unpack(state["structure"], state["arrays"])
        assert sequence == state["sequence"] > 0
        assert not is_new
        assert np.array_equal(obs, last_obs)
    # Steps are counted from before the cut, by the sequence and by the Monitor.
    assert ends
    assert all(step % length == 0 and n_steps == length for step, n_steps in ends)
    assert all(8 * state["sequence"] % length for state in states)


@pytest.mark.parametrize(
    ("env", "kwargs", "message"),
    [
        ("CartPole-v1", {"n_actors": -1}, "n_actors: expected a number of processes >= 1, or 0 for none, got -1"),
        (3, {"n_actors": 2}, "n_envs is the total: 3 environments cannot be shared out evenly among 2 actors; n_envs: 2 or 4"),
        ("dummy", {"n_actors": 2}, r"n_actors: expected the environment's id.*got a DummyVecEnv"),
        ("CartPole-v1", {"n_actors": 2, "rollout": "native"}, "rollout: 'native' is not possible with n_actors=2"),
        ("CartPole-v1", {"n_actors": 2, "actor_timeout": 0.0}, "actor_timeout: expected a number of seconds > 0, got 0.0"),
        ("CartPole-v1", {"n_actors": 2, "max_restarts": -1}, "max_restarts: expected a whole number >= 0, got -1"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(env: Any, kwargs: dict[str, Any], message: str) -> None:
    if env == "dummy":
        env = make_vec_env("CartPole-v1", 2)
    elif isinstance(env, int):
        env = make_vec_env("CartPole-v1", env, vec_env_cls=ActorVecEnv)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        IMPALA("MlpPolicy", env, **KWARGS, **kwargs)
