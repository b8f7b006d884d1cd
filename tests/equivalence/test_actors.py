"""Rollouts by actors against SB3's own loop over the same environments, fed with the same random numbers."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack, VecNormalize

from sb3_hrl.actors import ActorVecEnv
from sb3_hrl.actors.actor import derive_seed
from sb3_hrl.hppo import HPPO
from sb3_hrl.rollout import replay
from sb3_hrl.wrappers import ActionHold
from tests.training_state import ARRAYS, differences

N_ENVS, N_STEPS = 4, 64


class DictEnv(gym.ObservationWrapper):
    """
    Observations in a dictionary: a vector, and the same as bytes.

    :param env: with a vector
    :param shape: of the bytes; (36, 36, 1) is an image
    """

    def __init__(self, env: gym.Env, shape: tuple[int, ...]) -> None:
        super().__init__(env)
        self.observation_space = spaces.Dict({"vector": env.observation_space, "bytes": spaces.Box(0, 255, shape, np.uint8)})
        self._shape = shape

    def observation(self, observation: np.ndarray) -> dict[str, np.ndarray]:
        return {"vector": observation, "bytes": np.full(self._shape, int(10 * abs(observation[0])) % 256, np.uint8)}


class PictureEnv(gym.ObservationWrapper):
    """
    Observations as pictures with the channels last, each pixel another.

    :param env: with a vector
    """

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.observation_space = spaces.Box(0, 255, (40, 36, 3), np.uint8)
        self._pixels = np.arange(40 * 36 * 3).reshape(40, 36, 3)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return (self._pixels * int(1 + 100 * abs(observation[0])) % 251).astype(np.uint8)


class Case(NamedTuple):
    """
    :param env_id: the environment
    :param wrapper: around each, with its arguments
    :param norm: arguments of a VecNormalize; None without one
    :param n_stack: frames to stack; 0 for none
    :param stacks_outside: whether they are stacked after the VecNormalize, as the zoo does it
    :param kwargs: of HPPO
    """

    env_id: str
    wrapper: tuple[Any, dict[str, Any]] = (None, {})
    norm: dict[str, Any] | None = None
    n_stack: int = 0
    stacks_outside: bool = False
    kwargs: dict[str, Any] = {}  # noqa: RUF012


HOLD = (ActionHold, {"start_seconds": 0.064, "end_seconds": 0.008, "anneal_decisions": 100})
MULTI_INPUT = {"policy": "MultiInputPolicy"}
CASES = {
    "discrete": Case("CartPole-v1"),
    "time limits": Case("Pendulum-v1", norm={"gamma": 0.9}),
    "rewards only": Case("Hopper-v5", norm={"norm_obs": False}),
    "annealed hold": Case("Hopper-v5", HOLD, {}),
    "state-dependent noise": Case("Hopper-v5", kwargs={"use_sde": True, "sde_sample_freq": 8}),
    "frames": Case("CartPole-v1", norm={}, n_stack=3),
    # Lock-step freezes statistics only of the outermost VecNormalize; here they never learn.
    "frames of statistics": Case("CartPole-v1", norm={"training": False}, n_stack=3, stacks_outside=True),
    "dictionary": Case("CartPole-v1", (DictEnv, {"shape": (3,)}), {"norm_obs_keys": ["vector"]}, kwargs=MULTI_INPUT),
    "images": Case("CartPole-v1", (DictEnv, {"shape": (36, 36, 1)}), kwargs=MULTI_INPUT),
    "images as bytes": Case("CartPole-v1", (PictureEnv, {}), kwargs={"policy": "NatureCnnPolicy"}),
}


def _make(case: Case, cls: type[HPPO] = HPPO, start_index: int = 0, n_envs: int = N_ENVS, seed: int = 3, **kwargs: Any) -> Any:
    wrapper, wrapper_kwargs = case.wrapper
    vec_env_cls: Any = ActorVecEnv if kwargs.get("n_actors") else None
    env: Any = make_vec_env(
        case.env_id, n_envs, seed, start_index, wrapper_class=wrapper, wrapper_kwargs=wrapper_kwargs, vec_env_cls=vec_env_cls
    )
    if case.n_stack and not case.stacks_outside:
        env = VecFrameStack(env, case.n_stack)
    if case.norm is not None:
        env = VecNormalize(env, **case.norm)
        env.ret_rms.var = np.array(4.0)
    if case.stacks_outside:
        env.obs_rms.mean += 0.1
        env = VecFrameStack(env, case.n_stack)
    settings = {"n_steps": N_STEPS, "batch_size": 64, "n_epochs": 2, "device": "cpu", "freeze_normalization": True}
    model = cls(env=env, seed=seed, **{"policy": "MlpPolicy", **settings, **case.kwargs, **kwargs})
    env.seed(seed + start_index)
    return model


class NoiseSeed(BaseCallback):
    """Remembers from what the actors draw."""

    def _on_rollout_start(self) -> None:
        self.noise_seed = self.model._pool.noise_seed  # type: ignore[attr-defined]

    def _on_step(self) -> bool:
        return True


class InTurn(HPPO):
    """SB3's loop, with the random numbers that an actor draws."""

    numbers: tuple[int, int]
    n_rollouts = 0

    def collect_rollouts(self, *args: Any, **kwargs: Any) -> bool:
        th.manual_seed(derive_seed(*self.numbers, 0, self.n_rollouts))
        self.n_rollouts += 1
        return super().collect_rollouts(*args, **kwargs)


def _learn(model: Any, n_rollouts: int) -> int:
    callback = NoiseSeed()
    model.learn(n_rollouts * N_STEPS * model.n_envs, callback=callback if model.n_actors else None)
    return getattr(callback, "noise_seed", 0)


def _learn_in_turn(case: Case, noise_seed: int, actor: int, n_rollouts: int, **kwargs: Any) -> Any:
    model = _make(case, InTurn, rollout="lockstep", **kwargs)
    model.numbers = noise_seed, actor
    _learn(model, n_rollouts)
    return model


def _predict_row_by_row(model: Any, obs: Any) -> np.ndarray:
    """Values of what time limits cut as lock-step has them: one by one. (A batch has other last bits.)"""
    with th.no_grad():
        values = [model.policy.predict_values(model.policy.obs_to_tensor(row)[0]).flatten() for row in obs]
    return th.cat(values).numpy()


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_one_actor_learns_as_lockstep_does(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, statistics, episodes, buffers and counters are equal to the last bit after four updates."""
    with monkeypatch.context() as patch:
        patch.setattr(replay, "predict_values", _predict_row_by_row)
        model = _make(case, n_actors=1)
        noise_seed = _learn(model, 4)
    assert differences(model, _learn_in_turn(case, noise_seed, 0, 4)) == []
    assert len(model.ep_info_buffer) > 0


def test_other_noise_would_differ() -> None:
    case = CASES["discrete"]
    model = _make(case, n_actors=1)
    noise_seed = _learn(model, 1)
    assert differences(model, _learn_in_turn(case, noise_seed, 0, 1)) == []
    assert {"buffer.actions", "buffer.observations"} <= set(differences(model, _learn_in_turn(case, noise_seed + 1, 0, 1)))


def _by_env(buffer: Any, name: str, n_envs: int) -> np.ndarray:
    """An array of a buffer [E, T, ...]; the learner has flattened some of them so."""
    array = getattr(buffer, name)
    return array.reshape(n_envs, N_STEPS, -1) if len(array) == n_envs * N_STEPS else array.swapaxes(0, 1)


def test_each_actor_collects_what_lockstep_does_over_its_share() -> None:
    """Seeds are by environment, as in one process; so are places in the buffer."""
    case = CASES["rewards only"]._replace(norm=None)
    model = _make(case, n_actors=2)
    noise_seed = _learn(model, 1)
    share = N_ENVS // 2
    for actor in range(2):
        twin = _learn_in_turn(case, noise_seed, actor, 1, start_index=actor * share, n_envs=share)
        part = slice(actor * share, (actor + 1) * share)
        for name in ARRAYS:
            ours, theirs = (_by_env(m.rollout_buffer, name, m.n_envs) for m in (model, twin))
            assert np.array_equal(ours[part], theirs), name
            assert name == "n_held" or not np.array_equal(ours[part], ours[::-1][part])


def test_a_seed_gives_one_result() -> None:
    models = []
    for seed in (3, 3, 4):
        models.append(_make(CASES["annealed hold"], n_actors=2, seed=seed))
        _learn(models[-1], 3)
    assert differences(models[0], models[1]) == []
    assert "buffer.actions" in differences(models[0], models[2])
