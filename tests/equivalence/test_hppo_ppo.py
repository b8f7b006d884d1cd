"""Without held actions HPPO is PPO, bit for bit; with them it is not."""

from typing import Any

import pytest
import torch as th
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize

from sb3_hrl.hppo import HPPO
from sb3_hrl.wrappers import ActionHold

KWARGS: dict[str, Any] = {"n_steps": 128, "batch_size": 64, "n_epochs": 3, "seed": 5, "device": "cpu", "use_sde": False}


def _learn(algorithm: type[PPO], env_id: str, hold_seconds: float | None, **kwargs: Any) -> PPO:
    hold: dict[str, Any] = {"wrapper_class": ActionHold, "wrapper_kwargs": {"hold_seconds": hold_seconds}}
    env = VecNormalize(make_vec_env(env_id, n_envs=4, seed=5, **(hold if hold_seconds is not None else {})), gamma=0.98)
    # Five updates. Pendulum's episodes end by time limit only, Hopper's terminate: both bootstraps are in it.
    return algorithm("MlpPolicy", env, gamma=0.98, learning_rate=lambda p: 1e-3 * p, **{**KWARGS, **kwargs}).learn(5 * 4 * 128)


def _digest(model: PPO) -> dict[str, th.Tensor]:
    state = {f"policy.{key}": value for key, value in model.policy.state_dict().items()}
    for index, moments in model.policy.optimizer.state_dict()["state"].items():
        state |= {f"optimizer.{index}.{key}": value for key, value in moments.items()}
    normalize = model.get_vec_normalize_env()
    assert normalize is not None
    assert isinstance(normalize.obs_rms, RunningMeanStd)
    return state | {"obs_mean": th.as_tensor(normalize.obs_rms.mean), "ret_var": th.as_tensor(normalize.ret_rms.var)}


def _are_equal(first: PPO, second: PPO) -> bool:
    left, right = _digest(first), _digest(second)
    return left.keys() == right.keys() and all(th.equal(left[key], right[key]) for key in left)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "Hopper-v5", "CartPole-v1"])
@pytest.mark.parametrize("hold_seconds", [None, 0.0], ids=["no wrapper", "hold of zero"])
def test_without_held_actions_hppo_is_ppo(env_id: str, hold_seconds: float | None) -> None:
    assert _are_equal(_learn(HPPO, env_id, hold_seconds), _learn(PPO, env_id, None))


def test_sde_and_clipped_values_too() -> None:
    kwargs = {"use_sde": True, "sde_sample_freq": 4, "clip_range_vf": 0.2, "target_kl": 0.05}
    assert _are_equal(_learn(HPPO, "Pendulum-v1", None, **kwargs), _learn(PPO, "Pendulum-v1", None, **kwargs))


def test_with_held_actions_it_is_not() -> None:
    assert not _are_equal(_learn(HPPO, "Hopper-v5", 0.024), _learn(PPO, "Hopper-v5", 0.024))
