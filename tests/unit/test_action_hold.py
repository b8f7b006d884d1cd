"""ActionHold: what one decision is."""

import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecNormalize

from sb3_hrl.carried import Carried, CarriedActions, carry, unpack
from sb3_hrl.wrappers import ActionHold
from tests.envs import ScriptedEnv
from tests.reference.semi_markov import discounted_hold_reward

ACTION = np.array([0.5], dtype=np.float32)


def test_zero_is_the_identity() -> None:
    plain, held = gym.make("Hopper-v5"), ActionHold(gym.make("Hopper-v5"), hold_seconds=0)
    plain.action_space.seed(0)
    assert np.array_equal(plain.reset(seed=3)[0], held.reset(seed=3)[0])
    for _ in range(200):
        action = plain.action_space.sample()
        expected, got = plain.step(action), held.step(action)
        assert np.array_equal(expected[0], got[0])
        assert expected[1:4] == got[1:4]
        assert got[4].pop("n_held") == 1
        got[4].pop("episode", None), got[4].pop("hold_episode", None)
        assert expected[4] == got[4]
        if expected[2] or expected[3]:
            plain.reset(), held.reset()


def test_zero_needs_no_dt() -> None:
    env = ActionHold(ScriptedEnv(dt=None), hold_seconds=0)
    env.reset()
    assert env.step(ACTION)[4]["n_held"] == 1


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_reward_is_discounted_inside_the_hold(gamma: float) -> None:
    env = ActionHold(ScriptedEnv(n_steps=7), hold_seconds=0.03)
    env.configure_hold(gamma, 0)
    env.reset()
    decisions = [env.step(ACTION) for _ in range(3)]
    # Three steps each; the third decision is cut after one step by the end of the episode.
    assert [decision[4]["n_held"] for decision in decisions] == [3, 3, 1]
    assert [decision[2] for decision in decisions] == [False, False, True]
    expected = [discounted_hold_reward(rewards, gamma) for rewards in ([1, 2, 3], [4, 5, 6], [7])]
    assert [decision[1] for decision in decisions] == expected
    if gamma < 1:
        assert [decision[1] for decision in decisions] != [6, 15, 7]  # the undiscounted sums


def test_monitor_keeps_the_task_units() -> None:
    env = ActionHold(ScriptedEnv(n_steps=7), hold_seconds=0.03)
    env.configure_hold(0.5, 0)
    env.reset()
    infos = [env.step(ACTION)[4] for _ in range(3)]
    assert infos[-1]["episode"]["r"] == sum(range(1, 8))
    assert infos[-1]["episode"]["l"] == 7


def test_monitor_of_the_user_is_kept() -> None:
    monitor = Monitor(ScriptedEnv())
    assert ActionHold(monitor, hold_seconds=0.03).env is monitor


def test_annealing_is_linear_in_decisions() -> None:
    env = ActionHold(ScriptedEnv(n_steps=1000), start_seconds=0.05, end_seconds=0.01, anneal_decisions=4)
    env.reset()
    assert [env.step(ACTION)[4]["n_held"] for _ in range(7)] == [5, 4, 3, 2, 1, 1, 1]
    assert env.get_wrapper_attr("hold_decisions") == 7


def test_annealing_can_be_off() -> None:
    env = ActionHold(ScriptedEnv(n_steps=1000), start_seconds=0.05, end_seconds=0.01, anneal_decisions=4, anneal=False)
    env.reset()
    assert [env.step(ACTION)[4]["n_held"] for _ in range(6)] == [5] * 6


def test_the_counter_can_be_restored() -> None:
    env = ActionHold(ScriptedEnv(n_steps=1000), start_seconds=0.05, end_seconds=0.01, anneal_decisions=4)
    env.reset()
    env.configure_hold(1.0, 3)
    assert env.step(ACTION)[4]["n_held"] == 2
    assert env.hold_decisions == 4


def test_reset_does_not_restart_the_annealing() -> None:
    env = ActionHold(ScriptedEnv(n_steps=5), start_seconds=0.05, end_seconds=0.01, anneal_decisions=4)
    env.reset()
    env.step(ACTION)
    env.reset()
    assert env.hold_decisions == 1


def test_dt_comes_from_the_environment_or_is_given() -> None:
    assert ActionHold(gym.make("Hopper-v5"), hold_seconds=0.04).n_hold(0) == 5  # dt 0.008
    assert ActionHold(ScriptedEnv(dt=None), hold_seconds=0.04, dt=0.02).n_hold(0) == 2
    assert ActionHold(ScriptedEnv(dt=0.01), hold_seconds=0.04, dt=0.02).n_hold(0) == 2


def test_a_video_runs_at_the_speed_of_the_simulation() -> None:
    assert ActionHold(gym.make("Hopper-v5"), hold_seconds=0.04).metadata["render_fps"] == 25
    assert ActionHold(gym.make("Hopper-v5")).metadata["render_fps"] == 125


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"hold_seconds": 0.1, "dt": None}, "CartPole-v1 has no `dt`.*pass dt="),
        ({"hold_seconds": -0.1}, "hold_seconds: expected seconds >= 0, got -0.1"),
        ({"hold_seconds": float("nan")}, "hold_seconds: expected seconds >= 0, got nan"),
        ({"hold_seconds": 0.1, "dt": 0}, "dt: expected seconds > 0, got 0"),
        ({"start_seconds": 0.1}, "give either hold_seconds, or start_seconds, .* got start_seconds"),
        ({"hold_seconds": 0.1, "start_seconds": 0.1, "end_seconds": 0.0, "anneal_decisions": 5}, "got hold_seconds, start_"),
        ({"start_seconds": 0.1, "end_seconds": 0.0, "anneal_decisions": 0}, "anneal_decisions: expected a whole number >= 1"),
        ({"start_seconds": 0.1, "end_seconds": -1.0, "anneal_decisions": 5, "dt": 0.1}, "end_seconds: expected seconds >= 0"),
    ],
)
def test_bad_arguments_are_named(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ActionHold(gym.make("CartPole-v1"), **kwargs)


# --- actions that carry the model's position in the annealing


def _annealed() -> gym.Env:
    return ActionHold(Monitor(ScriptedEnv(n_steps=1000)), start_seconds=0.05, end_seconds=0.01, anneal_decisions=4)


def _annealed_discrete() -> gym.Env:
    env = ScriptedEnv(n_steps=1000, is_discrete=True)
    return ActionHold(Monitor(env), start_seconds=0.05, end_seconds=0.01, anneal_decisions=4)


@pytest.mark.parametrize("vec_env_cls", [DummyVecEnv, SubprocVecEnv])
@pytest.mark.parametrize("make_env", [_annealed, _annealed_discrete])
def test_a_carried_action_sets_the_hold_and_is_no_decision(vec_env_cls: Any, make_env: Any) -> None:
    venv = VecFrameStack(VecNormalize(vec_env_cls([make_env, make_env])), 2)
    venv.reset()
    is_discrete = isinstance(venv.action_space, spaces.Discrete)
    actions = np.zeros(2, dtype=np.int64) if is_discrete else np.zeros((2, 1), dtype=np.float32)
    infos = venv.step(carry(actions, Carried(3)))[3]
    assert [info["n_held"] for info in infos] == [2, 2]
    assert venv.get_attr("hold_decisions") == [0, 0]
    # A plain action, as a counter-check, is held for the first decision's five steps, and counts.
    infos = venv.step(actions)[3]
    assert [info["n_held"] for info in infos] == [5, 5]
    assert venv.get_attr("hold_decisions") == [1, 1]
    venv.close()


def test_the_environment_gets_a_plain_action() -> None:
    for make_env, actions in ((_annealed, np.zeros((1, 1), np.float32)), (_annealed_discrete, np.ones(1, np.int64))):
        env = make_env()
        env.reset()
        env.step(carry(actions, Carried(9))[0])
        (action,) = env.unwrapped.actions  # type: ignore[attr-defined]
        assert not isinstance(action, CarriedActions)
        assert action == actions[0]
        assert isinstance(action, np.generic) == (actions.ndim == 1)


def test_one_carried_discrete_action_can_be_a_key() -> None:
    action = carry(np.array([4, 5]), Carried(0))[1]
    assert {5: "five"}[action] == "five"
    with pytest.raises(TypeError, match="unhashable"):
        hash(carry(np.array([4, 5]), Carried(0)))


def test_two_holds_are_refused() -> None:
    with pytest.raises(ValueError, match="the environment has one already"):
        ActionHold(ActionHold(ScriptedEnv(), hold_seconds=0.02), hold_seconds=0.02)


def test_carried_actions_survive_what_happens_to_arrays() -> None:
    actions = carry(np.arange(6.0).reshape(3, 2), Carried(7))
    for derived in (
        actions[1],
        actions[1:],
        np.clip(actions, 0, 1),
        actions.copy(),
        pickle.loads(pickle.dumps(actions)),
        *actions,
    ):
        assert unpack(derived)[1] == Carried(7)
    assert np.array_equal(unpack(pickle.loads(pickle.dumps(actions)))[0], np.arange(6.0).reshape(3, 2))
    assert unpack(np.zeros(2))[1] is None
    assert unpack(3) == (3, None)
