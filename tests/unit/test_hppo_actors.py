"""HPPO with ``n_actors``: callbacks, saving, and how it ends. Numbers are compared in ``tests/equivalence/test_actors.py``."""

import multiprocessing
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3.common.callbacks import BaseCallback, CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecNormalize

from sb3_hrl.actors import ActorVecEnv
from sb3_hrl.checkpoint import Checkpointer
from sb3_hrl.hppo import HPPO
from tests.records import Records
from tests.training_state import differences

N_ENVS, N_STEPS = 4, 32
KWARGS: dict[str, Any] = {"n_steps": N_STEPS, "batch_size": 32, "n_epochs": 1, "n_actors": 2, "seed": 0, "device": "cpu"}


@pytest.fixture(autouse=True)
def _nobody_stays() -> Iterator[None]:
    yield
    assert multiprocessing.active_children() == []


def _make_env(env_id: str = "CartPole-v1", **kwargs: Any) -> Any:
    return make_vec_env(env_id, N_ENVS, vec_env_cls=ActorVecEnv, **kwargs)  # type: ignore[arg-type]


class Steps(BaseCallback):
    """Keeps what it sees, and does something at a step if it is told to."""

    def __init__(self, at: int = -1, act: Any = None) -> None:
        super().__init__()
        self.at, self.act = at, act
        self.seen: list[tuple[int, np.ndarray, int]] = []

    def _on_step(self) -> bool:
        infos = self.locals["infos"]
        self.seen.append((self.num_timesteps, self.locals["dones"], sum("episode" in info for info in infos)))
        return self.act() is not False if self.num_timesteps == self.at else True


def test_callbacks_see_every_step(tmp_path: Path) -> None:
    steps = Steps()
    evaluate = EvalCallback(VecNormalize(make_vec_env("CartPole-v1")), eval_freq=16, n_eval_episodes=1, log_path=str(tmp_path))
    save = CheckpointCallback(32, str(tmp_path), save_vecnormalize=True)
    model = HPPO("MlpPolicy", VecNormalize(_make_env()), **KWARGS)
    records = Records()
    model.set_logger(Logger(None, [records]))
    evaluate.verbose = 0
    model.learn(2 * N_STEPS * N_ENVS, callback=[steps, evaluate, save])
    assert [number for number, *_ in steps.seen] == list(range(N_ENVS, 2 * N_STEPS * N_ENVS + 1, N_ENVS))
    n_ended = sum(int(dones.sum()) for _, dones, _ in steps.seen)
    assert n_ended == sum(number for *_, number in steps.seen) == len(model.ep_info_buffer) > 0  # type: ignore[arg-type]
    assert np.load(tmp_path / "evaluations.npz")["timesteps"].tolist() == [64, 128, 192, 256]
    assert (tmp_path / "rl_model_vecnormalize_256_steps.pkl").is_file()
    row = records.rows[-1]
    assert row["time/actor_restarts"] == 0
    assert 0 < row["time/learner_wait"] <= 1
    assert 0 <= row["time/actor_wait"] <= 1


def test_a_killed_actor_is_counted() -> None:
    model = HPPO("MlpPolicy", _make_env(), **KWARGS)
    records = Records()
    model.set_logger(Logger(None, [records]))

    def kill() -> None:
        assert model._pool is not None
        os.kill(model._pool._workers[1].process.pid, signal.SIGKILL)

    with pytest.warns(RuntimeWarning, match="was killed by SIGKILL: replaced"):
        model.learn(3 * N_STEPS * N_ENVS, callback=Steps(N_STEPS * N_ENVS, kill))
    assert [row["time/actor_restarts"] for row in records.rows] == [0, 1, 1]


def test_a_killed_actor_changes_nothing_where_states_are_kept(tmp_path: Path) -> None:
    """Its replacement goes on where it was; without a Checkpointer it begins new episodes."""

    def learn(is_killed: bool, has_states: bool) -> Any:
        model = HPPO("MlpPolicy", VecNormalize(_make_env("Pendulum-v1", seed=0)), **KWARGS)

        def kill() -> None:
            assert model._pool is not None
            os.kill(model._pool._workers[1].process.pid, signal.SIGKILL)

        callbacks = [Steps(2 * N_STEPS * N_ENVS if is_killed else -1, kill), *([Checkpointer(tmp_path)] if has_states else [])]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.learn(4 * N_STEPS * N_ENVS, callback=callbacks)
        assert len(caught) == is_killed
        return model

    undisturbed = learn(is_killed=False, has_states=False)
    assert differences(undisturbed, learn(is_killed=True, has_states=True)) == []
    assert "buffer.observations" in differences(undisturbed, learn(is_killed=True, has_states=False))


def test_learn_goes_on_and_so_does_a_saved_model(tmp_path: Path) -> None:
    """``learn``, ``save``, ``load``, ``learn`` is ``learn``, ``learn``; a new beginning is another one."""
    models: list[Any] = []
    for how in ("on", "saved", "anew"):
        model = HPPO("MlpPolicy", VecNormalize(_make_env("Pendulum-v1", seed=0)), **KWARGS)
        model.learn(2 * N_STEPS * N_ENVS, callback=Checkpointer(tmp_path))
        if how == "saved":
            model.save(tmp_path / "model")
            model = HPPO.load(tmp_path / "model", env=VecNormalize(_make_env("Pendulum-v1", seed=7)))
        model.learn(2 * N_STEPS * N_ENVS, reset_num_timesteps=how == "anew")
        models.append(model)
    assert differences(models[0], models[1]) == []
    assert "buffer.observations" in differences(models[0], models[2])


def test_another_number_of_actors_is_said(tmp_path: Path) -> None:
    model = HPPO("MlpPolicy", _make_env(), **KWARGS)
    model.learn(N_STEPS * N_ENVS, callback=Checkpointer(tmp_path))
    model.save(tmp_path / "model")
    loaded = HPPO.load(tmp_path / "model", env=_make_env(), n_actors=4)
    with pytest.warns(UserWarning, match="states are of a ActorVecEnv with 2 actors, not of a ActorVecEnv with 4 actors"):
        loaded.learn(N_STEPS * N_ENVS, reset_num_timesteps=False)


def test_too_many_end_the_training() -> None:
    model = HPPO("MlpPolicy", _make_env(), **KWARGS, max_restarts=0)

    def kill() -> None:
        assert model._pool is not None
        os.kill(model._pool._workers[0].process.pid, signal.SIGKILL)

    with pytest.raises(RuntimeError, match=r"was killed by SIGKILL, and max_restarts=0 actors have been replaced already"):
        model.learn(10**6, callback=Steps(N_STEPS * N_ENVS, kill))


def test_a_callback_that_stops_or_fails_ends_the_actors() -> None:
    model = HPPO("MlpPolicy", _make_env(), **KWARGS)
    model.learn(10**6, callback=Steps(5 * N_ENVS, lambda: False))
    assert model.num_timesteps == 5 * N_ENVS
    with pytest.raises(ZeroDivisionError):
        model.learn(10**6, callback=Steps(5 * N_ENVS, lambda: 1 / 0))


def test_a_saved_model_has_no_processes(tmp_path: Path) -> None:
    model = HPPO("MlpPolicy", "CartPole-v1", **KWARGS)
    assert model.n_envs == 2
    assert multiprocessing.active_children() == []
    model.learn(2 * N_STEPS)
    model.save(tmp_path / "model")
    loaded = HPPO.load(tmp_path / "model")
    assert loaded.n_actors == 2
    obs = np.zeros((3, 4), dtype=np.float32)
    assert np.array_equal(loaded.predict(obs, deterministic=True)[0], model.predict(obs, deterministic=True)[0])
    assert multiprocessing.active_children() == []
    loaded = HPPO.load(tmp_path / "model", env=make_vec_env("CartPole-v1", 2))
    with pytest.raises(ValueError, match="got a DummyVecEnv: it exists already"):
        loaded.learn(2 * N_STEPS)
    loaded = HPPO.load(tmp_path / "model", env=make_vec_env("CartPole-v1", 2, vec_env_cls=ActorVecEnv))  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="not exactly; what restarts: the environments: ActorVecEnv"):
        loaded.learn(2 * N_STEPS, reset_num_timesteps=False)
    assert loaded.num_timesteps == 4 * N_STEPS


def test_without_actors_the_same_environments_are_stepped_here() -> None:
    model = HPPO("MlpPolicy", _make_env(), **{**KWARGS, "n_actors": None})
    model.learn(N_STEPS * N_ENVS)
    assert model.num_timesteps == N_STEPS * N_ENVS


def test_when_an_actor_counts_as_hung_is_a_parameter() -> None:
    model = HPPO("MlpPolicy", _make_env(), **KWARGS, actor_timeout=7.0)

    def look(locals_: dict[str, Any], globals_: dict[str, Any]) -> bool:
        assert model._pool is not None
        return model._pool._timeout == 7.0

    model.learn(2 * N_STEPS * N_ENVS, callback=look)
    assert model.num_timesteps == 2 * N_STEPS * N_ENVS


def test_what_is_not_possible() -> None:
    with pytest.raises(ValueError, match=r"^actor_timeout: expected a number of seconds > 0, got -1"):
        HPPO("MlpPolicy", _make_env(), **KWARGS, actor_timeout=-1)
    with pytest.raises(ValueError, match=r"^HPPO: rollout: 'native' is not possible with n_actors=2"):
        HPPO("MlpPolicy", _make_env(), **KWARGS, rollout="native")
    with pytest.raises(ValueError, match=r"^HPPO: n_actors: expected None for a body with muscles, got 2: native rollouts"):
        HPPO("MlpPolicy", _make_env("MuscleArmReach-v0"), **KWARGS)
    with warnings.catch_warnings(), pytest.raises(ValueError, match="cannot be shared out evenly among 3 actors"):
        HPPO("MlpPolicy", _make_env(), **{**KWARGS, "n_actors": 3})
