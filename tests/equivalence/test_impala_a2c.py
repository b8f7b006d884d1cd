"""On-policy, with one gradient step for each rollout, IMPALA is SB3's A2C."""

from typing import Any

import pytest
import torch as th
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecNormalize

from sb3_hrl_plugins.impala import IMPALA

COMMON: dict[str, Any] = {
    "n_steps": 16,
    "learning_rate": 1e-3,
    "gae_lambda": 0.95,
    "ent_coef": 0.01,
    "max_grad_norm": 0.5,
    "use_rms_prop": True,
    "rms_prop_eps": 1e-5,
    "seed": 3,
    "device": "cpu",
}


def _parameters(algorithm: Any, env_id: str, **kwargs: Any) -> th.Tensor:
    env = VecNormalize(make_vec_env(env_id, n_envs=4, seed=3))
    model = algorithm("MlpPolicy", env, **{**COMMON, **kwargs}).learn(16 * 4 * 6)
    return th.nn.utils.parameters_to_vector(model.policy.parameters()).detach()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
@pytest.mark.parametrize("normalize_advantage", [False, True])
def test_six_updates_are_those_of_a2c(env_id: str, normalize_advantage: bool) -> None:
    """Equal but for rounding: forward passes of other sizes, and ratios that are one up to the last bits."""
    expected = _parameters(A2C, env_id, normalize_advantage=normalize_advantage)
    got = _parameters(IMPALA, env_id, normalize_advantage=normalize_advantage)
    th.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
    # What is not A2C, as a counter-check, is not equal: V-trace with a bound below one.
    other = _parameters(IMPALA, env_id, normalize_advantage=normalize_advantage, rho_bar=0.5)
    assert (other - expected).abs().max() > 2e-3
