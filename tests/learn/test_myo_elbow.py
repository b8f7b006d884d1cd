"""HPPO solves MyoElbowPose-v0 with the hyperparameters that come with the package."""

import numpy as np
import pytest
from stable_baselines3.common.evaluation import evaluate_policy

from sb3_hrl.hppo import HPPO
from sb3_hrl.vec_env import NativeVecEnv
from tests.conftest import require_env
from tests.zoo.conftest import run_zoo

ELBOW = "MyoElbowPose-v0"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_elbow_is_solved(tmp_path):
    require_env(ELBOW)
    run_zoo("train", "--algo", "hppo", "--env", ELBOW, "--seed", "0", "--eval-freq", "-1", cwd=tmp_path)
    successes = []

    def note_success(variables, _):
        if variables["done"]:
            successes.append(variables["info"]["is_success"])

    model = HPPO.load(tmp_path / f"logs/hppo/{ELBOW}_1/{ELBOW}.zip")
    env = NativeVecEnv(ELBOW, 10)
    env.seed(1000)
    evaluate_policy(model, env, n_eval_episodes=100, callback=note_success)
    env.close()
    assert len(successes) == 100
    assert np.mean(successes) >= 0.8
