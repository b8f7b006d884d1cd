"""MyoSim's models: found by name, needed only by who uses them; and the task of its elbow."""

import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env

import sb3_hrl.envs
from sb3_hrl.envs import Engine, TaskError, load_task
from sb3_hrl.errors import MissingExtraError
from sb3_hrl.experiments.cli import main
from sb3_hrl.extras import check_extra
from sb3_hrl.muscle import QpLowLevel
from sb3_hrl.vec_env import NativeVecEnv
from sb3_hrl.vec_env.recipe import read_recipe
from tests.conftest import require_env

ELBOW = "MyoElbowPose-v0"
MESSAGE = r'needs MyoSim.s models, which come with the extra "myo": pip install "sb3-hrl\[myo\]"'

FIND_SPEC = importlib.util.find_spec


def find_all_but_myo_sim(name: str, package: str | None = None) -> Any:
    return None if name == "myo_sim" else FIND_SPEC(name, package)


# --- without the extra ---------------------------------------------------------------------------------------------------


def test_registering_and_reading_do_not_import_it():
    code = (
        "import sys, gymnasium as gym, sb3_hrl.envs, sb3_hrl.zoo.manager\n"
        f"gym.spec('{ELBOW}'), sb3_hrl.envs.load_task('MuscleArmReach-v0')\n"
        "assert 'myo_sim' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_extra_it_is_named(monkeypatch, capsys):
    monkeypatch.setattr(importlib.util, "find_spec", find_all_but_myo_sim)
    with pytest.raises(MissingExtraError, match=f"{ELBOW} {MESSAGE}"):
        check_extra(ELBOW)
    check_extra("MuscleArmReach-v0")
    check_extra("CartPole-v1")
    for make in (
        lambda: gym.make(ELBOW),
        lambda: NativeVecEnv(ELBOW, 2),
        lambda: load_task("MuscleEnv-v0", {"env_file": "myo_sim:myolegs"}),
    ):
        with pytest.raises(MissingExtraError, match=MESSAGE):
            make()
    assert main(["muscles", "myo_sim:myoelbow"]) == 1
    assert 'pip install "sb3-hrl[myo]"' in capsys.readouterr().err


def test_without_the_extra_the_zoo_creates_nothing(tmp_path):
    code = f"""\
import importlib.util, runpy, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "myo_sim" else find_spec(name, package)
sys.argv = ["train", "--algo", "hppo", "--env", "{ELBOW}"]
runpy.run_module("rl_zoo3.train", run_name="__main__")
"""
    process = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 2, process.stderr
    assert f"{ELBOW} needs MyoSim's models" in process.stderr
    assert 'pip install "sb3-hrl[myo]"' in process.stderr
    assert list(tmp_path.iterdir()) == []


# --- its models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "sizes"), [("myoelbow", (1, 6)), ("myolegs", (14, 80))])
def test_a_model_by_name(name, sizes):
    """One is a file of MyoSim's; the other is composed of several."""
    require_env(ELBOW)
    options: dict[str, Any] = {"env_file": f"myo_sim:{name}", "actuation": "muscle_e2e"}
    task = load_task("MuscleEnv-v0", options)
    assert task.model_hash == load_task("MuscleEnv-v0", options).model_hash
    assert task.model_path == Path(f"myo_sim:{name}")
    assert task.action_space.shape == (sizes[1],)
    assert load_task("MuscleEnv-v0", {"env_file": f"myo_sim:{name}"}).action_space.shape == (sizes[0],)
    env, engine = gym.make("MuscleEnv-v0", **options), Engine(task, 1, seeds=[1])
    obs, _ = env.reset(seed=1)
    assert np.array_equal(obs, engine.reset()[0][0])
    for action in np.random.default_rng(0).uniform(0, 1, (5, sizes[1])).astype(np.float32):
        obs, reward, *_ = env.step(action)
        result = engine.step(action[None])
        assert np.array_equal(obs, result.obs[0])
        assert reward == result.rewards[0]


def test_a_task_of_one_s_own_names_it(tmp_path):
    require_env(ELBOW)
    path = tmp_path / "mine.yaml"
    text = (Path(sb3_hrl.envs.__file__).with_name("tasks") / "muscle_env.yaml").read_text()
    path.write_text(text.replace("model: $xml_file", "model: myo_sim:myofinger"))
    assert load_task("MuscleEnv-v0", {"env_file": str(path)}).spec.muscles is not None
    path.write_text(text.replace("model: $xml_file", "model: myo_sim:myofingr"))
    with pytest.raises(TaskError, match=r"MyoSim cannot give the model myo_sim:myofingr: Unknown model 'myofingr'"):
        load_task("MuscleEnv-v0", {"env_file": str(path)})


def test_the_report_of_its_muscles(capsys):
    require_env(ELBOW)
    assert main(["muscles", "myo_sim:myolegs"]) == 0
    assert "80 muscles drive 14 coordinates" in capsys.readouterr().out
    assert main(["muscles", "myo_sim:myolgs"]) == 1
    assert "myo_sim:myolgs: Unknown model 'myolgs'" in capsys.readouterr().err


# --- the elbow -----------------------------------------------------------------------------------------------------------


def hold(env: Any, angle: float) -> np.ndarray:
    settings = env.unwrapped.task.muscles
    return ((angle - np.array(settings.nominal)) / settings.scale).clip(-1, 1).astype(np.float32)


@pytest.fixture
def elbow() -> Any:
    require_env(ELBOW)
    env: Any = gym.make(ELBOW)
    env.unwrapped.set_muscles(QpLowLevel())
    return env


def test_starts_and_targets_cover_the_range(elbow):
    starts, targets = np.array([elbow.reset(seed=seed)[0][[0, 2]] for seed in range(200)]).T
    for angles in (starts, targets):
        assert 0 <= angles.min() < 0.1
        assert 2.15 < angles.max() <= 2.27
        assert len(set(angles)) == 200
    assert abs(np.corrcoef(starts, targets)[0, 1]) < 0.2


def test_the_reward_is_the_stated_one(elbow):
    obs, reset_info = elbow.reset(seed=5)
    assert reset_info["target"] == obs[2]
    seen = set()
    for step in range(100):
        obs, reward, _, _, info = elbow.step(hold(elbow, obs[2] + 0.5 * np.sin(0.2 * step)))
        error = abs(info["error"])
        assert info["error"] == obs[0] - obs[2]
        n_bonuses = (error < 0.175) + (error < 0.2625)
        seen.add(int(n_bonuses))
        assert reward == pytest.approx(-error + 4 * n_bonuses - info["effort"])
    assert seen == {0, 1, 2}


def test_success_is_the_last_half_second(elbow):
    """Joint targets alone solve it: the wanted angle is held, and gravity moves it by less than the tolerance."""
    for n_away, is_success in ((0, 1.0), (90, 0.0)):
        obs, _ = elbow.reset(seed=2)
        target = obs[2]
        away = 2.2 if target < 1.1 else 0.0
        truncated, n_steps = False, 0
        while not truncated:
            action = hold(elbow, away if n_steps < n_away else target)
            _, _, terminated, truncated, info = elbow.step(action)
            n_steps += 1
            assert not terminated
        assert n_steps == 100
        assert info["is_success"] == is_success


def test_it_has_its_native_form(elbow):
    venv = make_vec_env(ELBOW, 2)
    native_env = NativeVecEnv(**read_recipe(venv)._asdict())
    venv.close()
    assert native_env.observation_space == venv.observation_space == elbow.observation_space
    assert native_env.observation_space.shape == (12,)
    assert native_env.get_attr("task")[0].dt == 0.02
    native_env.close()


def find_marker(picture: np.ndarray) -> np.ndarray:
    """Rows and columns of what is green [n, 2]; nothing in the model is."""
    red, green, blue = picture.astype(int).transpose(2, 0, 1)
    return np.argwhere((green > red + 50) & (green > blue + 30))


@pytest.mark.usefixtures("opengl")
def test_its_picture_shows_the_wanted_angle():
    """At a wanted angle the ball is where the wrist is then; neither model nor physics know of it."""
    require_env(ELBOW)
    env: Any = gym.make(ELBOW, render_mode="rgb_array", actuation="torque")
    env.reset(seed=0)
    twin, places = env.unwrapped, []
    for angle in (0.3, 1.2, 2.1):
        twin.set_state(np.array([angle]), np.zeros(1))
        wrist = twin.data.site("wrist").xpos.copy()
        twin.set_state(np.array([0.8]), np.zeros(1))
        twin.data.userdata[0] = angle
        before = twin.get_physics()
        places.append(find_marker(env.render()).mean(axis=0))
        assert np.array_equal(twin.get_physics(), before)
        assert np.array_equal(twin._marker_position(*twin.task.marker), wrist)
    assert places[0][0] > places[1][0] + 50 > places[2][0] + 100  # from below upwards
    native_env: Any = NativeVecEnv(ELBOW, 1, env_kwargs={"actuation": "torque"})
    native_env.seed(0)
    native_env.reset()
    env.reset(seed=0)
    assert np.array_equal(find_marker(native_env.get_images()[0]), find_marker(env.render()))
    twin.task = dataclasses.replace(twin.task, marker=None)
    assert len(find_marker(env.render())) == 0
    native_env.close()
    env.close()


@pytest.mark.usefixtures("opengl")
def test_its_picture_shows_the_arm_move():
    require_env(ELBOW)
    env: Any = gym.make(ELBOW, render_mode="rgb_array", actuation="torque")
    pictures = []
    for angle in (0.2, 2.0):
        env.reset(seed=0)
        env.unwrapped.set_state(np.array([angle]), np.zeros(1))
        pictures.append(env.render().astype(int).sum(axis=2) > 60)
    env.close()
    changed = pictures[0] != pictures[1]
    assert 0.005 < changed.mean() < 0.2
    rows, columns = np.nonzero(changed)
    # The whole forearm is within the picture.
    assert (rows.min(), columns.min()) > (5, 5)
    assert max(rows.max(), columns.max()) < 475
