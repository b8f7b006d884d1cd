"""HPPO on bodies with muscles: what the lower level learns, where its muscles go, and what is refused."""

import re
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import optuna
import pytest
import torch as th
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecNormalize

import sb3_hrl.envs
from sb3_hrl.carried import CarriedActions
from sb3_hrl.errors import NativeError
from sb3_hrl.hppo import HPPO
from sb3_hrl.vec_env import NativeVecEnv
from sb3_hrl.zoo.samplers import MUSCLE_KWARGS, convert_hppo_params, sample_hppo_params
from tests.records import Records

ARM = "MuscleArmReach-v0"
IMPORTED_ARM = f"sb3_hrl.envs:{ARM}"  # for processes that have not imported it
QUICK = {"n_pretrain": 64, "pretrain_epochs": 1, "hidden": [16, 16], "n_epochs": 1, "reservoir_size": 100}


def make(env: Any = None, muscle_kwargs: dict[str, Any] | None = None, **kwargs: Any) -> HPPO:
    """A small model, by default on two native arms."""
    env = NativeVecEnv(ARM, 2) if env is None else env
    defaults: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 5, "device": "cpu"}
    return HPPO("MlpPolicy", env, muscle_kwargs={**QUICK, **(muscle_kwargs or {})}, **{**defaults, **kwargs})


def weights(model: HPPO) -> list[np.ndarray]:
    """Of all levels of the muscle network."""
    assert model.muscle_level is not None
    return [array.copy() for level in model.muscle_level.muscles.levels for layer in level for array in layer]


def is_equal(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return len(left) == len(right) and all(np.array_equal(here, there) for here, there in zip(left, right, strict=True))


# --- learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rollout", ["native", "lockstep"])
def test_muscles_learn_beside_the_policy(rollout: str) -> None:
    model = make(rollout=rollout)
    records = Records()
    model.set_logger(Logger(None, [records]))
    before = weights(model)
    model.learn(96)
    assert not is_equal(before, weights(model))
    assert model.muscle_level is not None
    tuples = model.muscle_level.buffer.tuples()
    assert tuples.shape == (32, 8 + 2 + 1)  # packed torques, desired ones, a weight
    assert len(np.unique(tuples[:, 0])) == 32
    names = "loss", "torque_rmse", "excess_over_qp", "infeasible_fraction", "effort", "saturation", "co_contraction"
    rows = records.rows[1:]  # an iteration is logged before it is learned from
    assert len(rows) == 2
    for name in names:
        assert np.isfinite([row[f"muscle/{name}"] for row in rows]).all()


def test_the_muscles_take_no_random_number_from_the_policy() -> None:
    states = []
    for muscle_kwargs in ({"low_level": "torque"}, {}, {"n_epochs": 3, "n_pretrain": 100}):
        model = make(muscle_kwargs=muscle_kwargs)
        model.learn(64)
        states.append((th.get_rng_state(), np.random.get_state()[1], np.random.get_state()[2]))  # type: ignore[index]
    for other in states[1:]:
        assert th.equal(states[0][0], other[0])
        assert np.array_equal(states[0][1], other[1])
        assert states[0][2] == other[2]


@pytest.mark.parametrize("low_level", ["qp", "torque"])
def test_other_low_levels(low_level: str) -> None:
    model = make(muscle_kwargs={"low_level": low_level})
    model.learn(32)
    assert model.muscle_level is not None
    assert model.muscle_level.learner is None
    info = evaluate(model)
    assert (info["torque_error"] == 0.0) == (low_level == "torque")


def evaluate(model: HPPO, **env_kwargs: Any) -> dict[str, Any]:
    """The last info of a few steps in an environment that the model has never met."""
    env = gym.make(ARM, **env_kwargs)
    obs, _ = env.reset(seed=1)
    for _ in range(3):
        actions, _ = model.predict(obs, deterministic=True)
        obs, _, _, _, info = env.step(actions)
    env.close()
    return info


def test_a_frozen_network_stays_as_it_was_pretrained() -> None:
    model = make(muscle_kwargs={"is_frozen": True})
    model._setup_learn(32)
    before = weights(model)
    model.learn(64)
    assert is_equal(before, weights(model))


def test_pretraining_can_be_off_and_happens_once() -> None:
    raw = make(muscle_kwargs={"n_pretrain": 0})
    fresh = weights(raw)
    raw._setup_learn(32)
    assert is_equal(fresh, weights(raw))
    model = make(muscle_kwargs={"is_frozen": True})
    model._setup_learn(32)
    pretrained = weights(model)
    assert not is_equal(fresh, pretrained)
    model._setup_learn(32)
    assert is_equal(pretrained, weights(model))


@pytest.mark.parametrize("actuation", ["muscle_e2e", "torque"])
def test_without_a_lower_level_it_is_ppo(actuation: str, capsys: pytest.CaptureFixture[str]) -> None:
    model = make(NativeVecEnv(ARM, 2, env_kwargs={"actuation": actuation}), verbose=1)
    model.learn(32)
    assert model.muscle_level is None
    assert "muscle_kwargs have no effect" in capsys.readouterr().out
    assert not isinstance(model.predict(np.zeros(16))[0], CarriedActions)


def test_a_held_decision_leaves_one_tuple() -> None:
    for rollout in ("native", "lockstep"):
        env = NativeVecEnv(ARM, 2, hold={"hold_seconds": 0.06})
        model = make(env, rollout=rollout)
        model.learn(32)
        assert model.muscle_level is not None
        assert model.muscle_level.buffer.pos == 16
        assert (model.rollout_buffer.n_held == 3).any()  # type: ignore[attr-defined]


def test_in_python_environments() -> None:
    for vec_env_cls in (DummyVecEnv, SubprocVecEnv):
        model = make(make_vec_env(IMPORTED_ARM, 2, seed=0, vec_env_cls=vec_env_cls), n_steps=4, batch_size=8)
        model.learn(8)
        assert model.muscle_level is not None
        assert np.isfinite(model.muscle_level.buffer.tuples()).all()
        assert model.env is not None
        model.env.close()


# --- where the muscles go -----------------------------------------------------------------------------------------------


def test_the_zip_holds_the_muscles(tmp_path: Path) -> None:
    model = make()
    model.learn(64)
    model.save(tmp_path / "model")
    loaded = HPPO.load(tmp_path / "model", device="cpu")
    assert is_equal(weights(model), weights(loaded))
    assert model.muscle_level is not None
    assert loaded.muscle_level is not None
    assert loaded.muscle_level.is_pretrained
    for name in ("network", "optimizer", "generator", "reservoir"):
        assert str(model.muscle_level.state_dict()[name]) == str(loaded.muscle_level.state_dict()[name])
    left, right = evaluate(model), evaluate(loaded)
    assert left["torque_error"] == right["torque_error"] > 0
    again = HPPO.load(tmp_path / "model", env=NativeVecEnv(ARM, 2), device="cpu")
    again.learn(32, reset_num_timesteps=False)
    assert not is_equal(weights(model), weights(again))


def test_without_muscles_an_environment_refuses_to_step() -> None:
    env = gym.make(ARM)
    env.reset()
    with pytest.raises(NativeError, match="load the model with HPPO and let it act here, or call set_muscles"):
        env.step(np.zeros(2, np.float32))
    native_env = NativeVecEnv(ARM, 2)
    native_env.reset()
    with pytest.raises(NativeError, match="load the model with HPPO and let it act here, or call set_muscles"):
        native_env.step(np.zeros((2, 2), np.float32))


@pytest.mark.parametrize("kind", ["native", "dummy", "subproc", "normalized"])
def test_evaluation_has_the_model_s_muscles(kind: str) -> None:
    model = make()
    model.learn(32)
    env: Any = NativeVecEnv(ARM, 2)
    if kind != "native":
        env = make_vec_env(IMPORTED_ARM, 2, seed=0, vec_env_cls=SubprocVecEnv if kind == "subproc" else DummyVecEnv)
    if kind == "normalized":
        env = VecNormalize(env, training=False)
    rewards, lengths = evaluate_policy(model, env, n_eval_episodes=2, return_episode_rewards=True)
    assert lengths == [150, 150]
    assert np.isfinite(rewards).all()
    env.close()


def test_eval_callback_has_the_muscles_of_its_moment() -> None:
    eval_env = NativeVecEnv(ARM, 1)
    versions = []

    class Evaluation(EvalCallback):
        def _on_step(self) -> bool:
            is_going_on = super()._on_step()
            versions.append((eval_env._muscles.version, self.model.muscle_level.muscles.version))  # type: ignore[union-attr,attr-defined]
            return is_going_on

    make(n_steps=8).learn(32, callback=Evaluation(eval_env, eval_freq=1, n_eval_episodes=1))
    assert all(here == there for here, there in versions)
    assert len(set(versions)) == 2


# --- cascades -----------------------------------------------------------------------------------------------------------


def test_a_second_level_learns_on_top_of_the_first(tmp_path: Path) -> None:
    first = make()
    first.learn(64)
    first.save(tmp_path / "first")
    env = NativeVecEnv(ARM, 2, env_kwargs={"has_cascade": True})
    second = make(env, muscle_kwargs={"base": str(tmp_path / "first"), "hidden": [8], "n_pretrain": 0}, rollout="native")
    assert env.action_space.shape == (3,)
    np.testing.assert_allclose(second.policy.log_std.detach(), [0.0, 0.0, 1.0])
    before = weights(second)
    second.learn(96)
    after = weights(second)
    n_frozen = len(weights(first))
    assert is_equal(after[:n_frozen], weights(first))
    assert not is_equal(after[n_frozen:], before[n_frozen:])
    assert second.muscle_level is not None
    share = second.muscle_level.buffer.tuples()[:, -1]
    actions = second.rollout_buffer.actions[..., 2].astype(np.float64)
    expected = (1 / (1 + np.exp(-np.clip(actions, -10, 10)))).ravel()
    np.testing.assert_allclose(np.sort(share), np.sort(expected), rtol=1e-6)
    second.save(tmp_path / "second")
    (tmp_path / "first.zip").unlink()
    loaded = HPPO.load(tmp_path / "second", device="cpu")
    assert is_equal(after, weights(loaded))
    assert np.isfinite(evaluate(loaded, has_cascade=True)["effort"])


def test_a_cascade_and_its_action_belong_together(tmp_path: Path) -> None:
    first = make()
    first.save(tmp_path / "first")
    with pytest.raises(ValueError, match="env_kwargs has_cascade: true"):
        make(muscle_kwargs={"base": str(tmp_path / "first")})
    with pytest.raises(ValueError, match="env_kwargs has_cascade: false"):
        make(NativeVecEnv(ARM, 2, env_kwargs={"has_cascade": True}))


# --- standard deviations --------------------------------------------------------------------------------------------------


def test_standard_deviations_by_group() -> None:
    model = make(log_std={"targets": -1.0, "elbow": -2.0}, learn_std=False)
    model.learn(64)
    np.testing.assert_allclose(model.policy.log_std.detach(), [-1.0, -2.0])
    learned = make(log_std=np.float32(-1.0))
    learned.learn(64)
    assert not np.allclose(learned.policy.log_std.detach(), -1.0, atol=1e-6)


def test_an_annealed_standard_deviation() -> None:
    model = make(log_std=0.0, log_std_end=-2.0)
    model.learn(32 * 4)
    np.testing.assert_allclose(model.policy.log_std.detach(), [-2.0, -2.0], atol=1e-6)
    half = make(log_std=0.0, log_std_end=-2.0)
    half._setup_learn(64)
    half.num_timesteps = 32
    half._update_current_progress_remaining(32, 64)
    half._set_log_std(half._current_progress_remaining)
    np.testing.assert_allclose(half.policy.log_std.detach(), [-1.0, -1.0], atol=1e-6)


# --- what is refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"muscle_kwargs": {"hiden": [8]}}, "muscle_kwargs: there is no 'hiden', did you mean 'hidden'"),
        ({"muscle_kwargs": {"low_level": "qd"}}, "muscle_kwargs: low_level: expected network, qp, torque, got 'qd'"),
        ({"muscle_kwargs": {"batch_size": 0}}, "muscle_kwargs: batch_size: expected a whole number >= 1, got 0"),
        ({"muscle_kwargs": {"effort_weight": "abc"}}, "muscle_kwargs: effort_weight: expected a number >= 0, got 'abc'"),
        ({"muscle_kwargs": {"is_frozen": "no"}}, "muscle_kwargs: is_frozen: expected true or false, got 'no'"),
        ({"muscle_kwargs": {"base": "nope.zip"}}, "muscle_kwargs: base: there is no file 'nope.zip'"),
        (
            {"muscle_kwargs": {"learning_rate": "fast"}},
            "muscle_kwargs: learning_rate: expected a number > 0, or lin_<number>, got 'fast'",
        ),
        ({"log_std": {"knee": 0.0}}, "log_std: there is no 'knee'"),
        ({"log_std": "abc"}, "log_std: expected a number, or one for each group, got 'abc'"),
        (
            {"log_std": {"elbow": 0.0}, "use_sde": True, "policy_kwargs": {"full_std": False}},
            "log_std: with full_std: false all actions share their standard deviations",
        ),
    ],
)
def test_wrong_arguments(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make(**kwargs)


def test_another_body_is_refused(tmp_path: Path) -> None:
    """One with as many joints and muscles: a muscle has another name."""
    model = make(rollout="lockstep")
    model.learn(32)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="Observation spaces do not match"):
        HPPO.load(tmp_path / "model", env=NativeVecEnv("MuscleWalkerStand-v0", 2), device="cpu")
    assert model.muscle_body is not None
    folder, name = Path(sb3_hrl.envs.__file__).parent, model.muscle_body["muscles"][0]
    text = (folder / "assets" / "muscle_arm.xml").read_text()
    assert f'"{name}"' in text
    (tmp_path / "other.xml").write_text(text.replace(f'"{name}"', '"other"'))
    task = (folder / "tasks" / "muscle_arm_reach.yaml").read_text()
    (tmp_path / "other.yaml").write_text(task.replace("muscle_arm.xml", "other.xml"))
    kwargs = {"env_file": str(tmp_path / "other.yaml")}
    other = NativeVecEnv("MuscleEnv-v0", 2, env_kwargs=kwargs)
    with pytest.raises(ValueError, match=r"the model's muscles are not those of .*: muscles: the model has \["):
        HPPO.load(tmp_path / "model", env=other, device="cpu")
    late = HPPO.load(tmp_path / "model", device="cpu")
    late.set_env(other)
    with pytest.raises(ValueError, match="the model's muscles are not those of"):
        late.learn(32)
    for env in (other, make_vec_env("sb3_hrl.envs:MuscleEnv-v0", 1, env_kwargs=kwargs)):
        with pytest.raises(ValueError, match="the model's muscles are for another body"):
            evaluate_policy(model, env, 1)


def test_a_model_that_was_saved_with_another_low_level(tmp_path: Path) -> None:
    model = make(muscle_kwargs={"low_level": "qp"})
    model.learn(32)
    model.save(tmp_path / "qp")
    loaded = HPPO.load(tmp_path / "qp", env=NativeVecEnv(ARM, 2), device="cpu", muscle_kwargs={**QUICK, "reservoir_size": 7})
    loaded.learn(32)
    assert loaded.muscle_level is not None
    assert loaded.muscle_level.is_pretrained
    loaded.save(tmp_path / "network")
    smaller = HPPO.load(tmp_path / "network", device="cpu", muscle_kwargs={**QUICK, "reservoir_size": 3})
    assert is_equal(weights(smaller), weights(loaded))


def test_loaded_parameters_are_not_pretrained_again(tmp_path: Path) -> None:
    model = make()
    model.learn(32)
    model.save(tmp_path / "model")
    other = make(muscle_kwargs={"is_frozen": True})
    other.set_parameters(str(tmp_path / "model"))
    other._setup_learn(32)
    assert is_equal(weights(model), weights(other))


def test_nobody_learns_from_a_breakdown() -> None:
    model = make()
    assert model.muscle_level is not None
    assert model.muscle_level.learner is not None
    buffer = model.muscle_level.buffer
    rows = np.ones((2, 10), np.float32)
    rows[0] = np.nan
    buffer.add(rows)
    assert len(buffer.tuples()) == 1
    before = weights(model)
    assert np.isnan(model.muscle_level.learner.fit(np.full((4, 10), 1e30, np.float32), 1, 1e-3))
    model.muscle_level._muscles = None
    assert is_equal(before, weights(model))


# --- tuning -------------------------------------------------------------------------------------------------------------


def test_a_trial_varies_the_muscles_of_a_body() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(0))
    plain = sample_hppo_params(study.ask(), 2, 4, {})
    assert MUSCLE_KWARGS not in plain
    trial = study.ask()
    trial.set_user_attr(MUSCLE_KWARGS, {"n_pretrain": 64, "n_epochs": 99})
    params = sample_hppo_params(trial, 2, 4, {})
    kwargs = params[MUSCLE_KWARGS]
    assert kwargs["n_pretrain"] == 64  # the file's
    assert kwargs["n_epochs"] == trial.params["muscle_n_epochs"] <= 10  # the trial's
    HPPO.check_arguments(kwargs, params["log_std"])
    again = convert_hppo_params(trial.params)
    assert {**kwargs, **again[MUSCLE_KWARGS]} == kwargs
    assert set(again) == set(params)
