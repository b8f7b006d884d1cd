"""IMPALA learns, with the hyperparameters that the zoo has for it."""

from typing import Any

import pytest
import yaml
from rl_zoo3.utils import SimpleLinearSchedule
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

from sb3_hrl.registry import get_spec
from sb3_hrl.vec_env import NativeVecEnv
from sb3_hrl.zoo.validation import normalise
from sb3_hrl_plugins.impala import IMPALA


def _hyperparams(env_id: str) -> dict[str, Any]:
    sections = yaml.safe_load(get_spec("impala").hyperparams_path.read_text())
    section = normalise(sections[env_id], IMPALA)
    rate = section["learning_rate"]
    if isinstance(rate, str):
        section["learning_rate"] = SimpleLinearSchedule(rate.removeprefix("lin_"))
    return {key: value for key, value in section.items() if key not in ("n_timesteps", "normalize", "n_envs")}


@pytest.mark.slow
def test_cartpole() -> None:
    env = make_vec_env("CartPole-v1", n_envs=8, seed=0)
    model = IMPALA(env=env, seed=0, device="cpu", **_hyperparams("CartPole-v1")).learn(60_000)
    mean: Any = evaluate_policy(model, make_vec_env("CartPole-v1", n_envs=4, seed=1), n_eval_episodes=20)[0]
    assert mean > 475  # solved, by the task's own measure


@pytest.mark.slow
def test_half_cheetah() -> None:
    env = VecNormalize(NativeVecEnv("HalfCheetah-v5", n_envs=16))
    model = IMPALA(env=env, seed=0, device="cpu", **_hyperparams("HalfCheetah-v5")).learn(300_000)
    env.training, env.norm_reward = False, False
    mean: Any = evaluate_policy(model, env, n_eval_episodes=16)[0]
    assert mean > 500  # random actions get about -280
