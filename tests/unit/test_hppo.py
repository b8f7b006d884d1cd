"""HPPO and ActionHold together: who knows gamma and the annealing, and when."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

from sb3_hrl.carried import CarriedActions
from sb3_hrl.hppo import HPPO
from sb3_hrl.rollout import TimeAwareRolloutBuffer
from sb3_hrl.wrappers import ActionHold
from tests.envs import ScriptedEnv
from tests.records import Records

KWARGS: dict[str, Any] = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "seed": 0, "device": "cpu"}


def _annealed() -> gym.Env:
    return ActionHold(ScriptedEnv(n_steps=50), start_seconds=0.05, end_seconds=0.01, anneal_decisions=16)


def _venv(n_envs: int = 2) -> VecEnv:
    return DummyVecEnv([_annealed] * n_envs)


@pytest.mark.parametrize("vec_env_cls", [DummyVecEnv, SubprocVecEnv])
def test_gamma_is_said_once(vec_env_cls: Any) -> None:
    env = vec_env_cls([_annealed, _annealed])
    assert env.get_attr("gamma") == [1.0, 1.0]
    model = HPPO("MlpPolicy", env, gamma=0.9, **KWARGS)
    assert env.get_attr("gamma") == [1.0, 1.0]  # a model that only predicts leaves the task's units
    seen: list[list[float]] = []

    def note(locals_: dict[str, Any], globals_: dict[str, Any]) -> bool:
        seen.append(env.get_attr("gamma"))
        return True

    model.learn(16, callback=note)
    assert seen == [[0.9, 0.9]] * 8
    assert env.get_attr("gamma") == [1.0, 1.0]  # nor does training leave it there
    env.close()


def test_the_annealing_belongs_to_the_model(tmp_path: Path) -> None:
    env = _venv()
    model = HPPO("MlpPolicy", env, **KWARGS)
    assert model.hold_decisions == 0
    model.learn(16)  # 8 decisions of each environment
    assert model.hold_decisions == 8
    assert env.get_attr("hold_decisions") == [8, 8]
    model.save(tmp_path / "model")
    # Continued on fresh environments it goes on where it was, and does not start again.
    fresh = _venv()
    loaded = HPPO.load(tmp_path / "model", env=fresh, device="cpu")
    loaded.learn(16)
    assert loaded.hold_decisions == 16
    assert fresh.get_attr("hold_decisions") == [16, 16]


def test_evaluation_holds_as_training_does_and_does_not_advance_it(tmp_path: Path) -> None:
    model = HPPO("MlpPolicy", _venv(), **KWARGS).learn(16)
    eval_env = _venv(1)
    lengths: list[int] = []

    def note(locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        lengths.append(locals_["info"]["n_held"])

    for predictor in (model, _reloaded(model, tmp_path)):
        lengths.clear()
        evaluate_policy(predictor, eval_env, n_eval_episodes=2, callback=note)
        # Half way from 5 to 1 steps: three, but for the cut at the end of the episode (50 = 16 * 3 + 2).
        assert lengths == ([3] * 16 + [2]) * 2
        assert eval_env.get_attr("hold_decisions") == [0]
        assert model.hold_decisions == 8


def _reloaded(model: HPPO, folder: Path) -> HPPO:
    model.save(folder / "model")
    return HPPO.load(folder / "model", device="cpu")


def test_eval_callback_sees_the_hold_of_its_moment() -> None:
    seen: list[int | None] = []

    class Note(BaseCallback):
        def _on_step(self) -> bool:
            obs = np.zeros((1, 2), dtype=np.float32)
            actions, _ = self.model.predict(obs)
            assert isinstance(actions, CarriedActions)
            assert actions.carried is not None
            seen.append(actions.carried.hold_decisions)
            assert actions.carried.hold_decisions == self.training_env.get_attr("hold_decisions")[0]
            return True

    eval_callback = EvalCallback(_venv(1), eval_freq=4, n_eval_episodes=1, verbose=0)
    model = HPPO("MlpPolicy", _venv(), **KWARGS).learn(16, callback=[Note(), eval_callback])
    assert seen == list(range(1, 9))
    assert model.hold_decisions == 8
    assert eval_callback.last_mean_reward == sum(range(1, 51))  # the task's own units


def test_without_a_hold_actions_are_plain() -> None:
    model = HPPO("MlpPolicy", DummyVecEnv([ScriptedEnv]), **KWARGS).learn(8)
    actions, _ = model.predict(np.zeros((1, 2), dtype=np.float32))
    assert type(actions) is np.ndarray


def test_logs() -> None:
    records = Records()
    model = HPPO("MlpPolicy", _venv(), **KWARGS)
    model.set_logger(Logger(None, [records]))
    model.learn(32)
    # Decisions 0..7 from 5 to 3.25 steps, 8..15 from 3 to 1.25 steps, rounded, no episode ends.
    expected = [np.mean([max(1, round(5 - 4 * d / 16)) for d in decisions]) for decisions in (range(8), range(8, 16))]
    assert [row["rollout/n_held_mean"] for row in records.rows] == expected
    assert all(row["time/simulated_fps"] >= row["time/fps"] > 0 for row in records.rows)
    n_simulated_steps = model.n_simulated_steps
    assert n_simulated_steps == 2 * 8 * sum(expected)
    model.learn(16)
    assert model.n_simulated_steps < n_simulated_steps  # it counts anew in every learn


def test_a_callback_that_stops_training_stops_it() -> None:
    model = HPPO("MlpPolicy", _venv(), **KWARGS).learn(64, callback=lambda locals_, globals_: False)
    assert model.num_timesteps == 2


def test_a_buffer_that_is_not_time_aware_is_refused() -> None:
    class OtherBuffer(RolloutBuffer):
        pass

    with pytest.raises(ValueError, match=r"rollout_buffer_class: expected a subclass of TimeAware.*, got OtherBuffer"):
        HPPO("MlpPolicy", _venv(), rollout_buffer_class=OtherBuffer, **KWARGS)


def test_a_saved_ppo_can_go_on_as_hppo(tmp_path: Path) -> None:
    PPO("MlpPolicy", _venv(), **KWARGS).save(tmp_path / "ppo")
    model = HPPO.load(tmp_path / "ppo", env=_venv(), device="cpu")
    model.learn(16)
    assert isinstance(model.rollout_buffer, TimeAwareRolloutBuffer)
    assert model.hold_decisions == 8


def test_some_with_and_some_without_a_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="either all environments have an ActionHold or none; here 1 of 2 have"):
        HPPO("MlpPolicy", DummyVecEnv([_annealed, ScriptedEnv]), **KWARGS)


def test_on_an_environment_without_a_hold_the_position_is_forgotten() -> None:
    model = HPPO("MlpPolicy", _venv(), **KWARGS).learn(16)
    model.set_env(DummyVecEnv([ScriptedEnv, ScriptedEnv]))
    model.learn(16)
    assert model.hold_decisions is None
    assert type(model.predict(np.zeros((1, 2), dtype=np.float32))[0]) is np.ndarray


def test_an_untrained_model_evaluates_at_the_first_hold() -> None:
    model, eval_env, lengths = HPPO("MlpPolicy", _venv(), **KWARGS), _venv(1), []
    evaluate_policy(model, eval_env, 1, callback=lambda locals_, globals_: lengths.append(locals_["info"]["n_held"]))
    assert lengths == [5] * 10


def test_a_monitor_outside_the_hold_is_put_right_and_reported() -> None:
    hold: dict[str, Any] = {"hold_seconds": 0.03}

    def episode(make: Any) -> dict[str, Any]:
        model = HPPO("MlpPolicy", DummyVecEnv([make]), gamma=0.5, **KWARGS).learn(8)
        assert model.ep_info_buffer
        return model.ep_info_buffer[0]

    inside = episode(lambda: ActionHold(Monitor(ScriptedEnv(n_steps=7)), **hold))  # a warning would be an error here
    with pytest.warns(UserWarning, match=r"a Monitor lies outside ActionHold.*make_vec_env\(env_id, wrapper_class=") as caught:
        outside = episode(lambda: Monitor(ActionHold(ScriptedEnv(n_steps=7), **hold)))
    assert len(caught) == 1
    assert (inside["r"], inside["l"]) == (outside["r"], outside["l"]) == (28, 7)


def test_the_progress_bar_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm calls its own rich bar experimental
        HPPO("MlpPolicy", _venv(), **KWARGS).learn(16, progress_bar=True)
    assert "16/16" in capsys.readouterr().out
