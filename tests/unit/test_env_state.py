"""What is taken of environments and callbacks, and what is named because it cannot be."""

import random
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, EveryNTimesteps, StopTrainingOnMaxEpisodes
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack, VecMonitor, VecNormalize

from sb3_hrl.checkpoint import Checkpointer, resumable
from sb3_hrl.checkpoint.archive import newest
from sb3_hrl.checkpoint.archive import read as read_archive
from sb3_hrl.checkpoint.env_state import begins_anew, get_env_state, set_env_state
from tests.envs import ScriptedEnv

SMALL: dict[str, Any] = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0, "device": "cpu"}
ACTION = [np.zeros(1, dtype=np.float32)]


class NestedEnv(ScriptedEnv):
    """Its state lies in containers that change in place."""

    def __init__(self) -> None:
        super().__init__(n_steps=100)
        self.past: dict[str, Any] = {"seen": [[0]], "sum": np.zeros(1)}
        self.rng = np.random.default_rng(3)

    def step(self, action: Any) -> Any:
        self.past["seen"][0].append(self.t)
        self.past["sum"] += self.rng.normal()
        return super().step(action)


class EnvInEnv(ScriptedEnv):
    """Another environment is part of its state."""

    def __init__(self) -> None:
        super().__init__(n_steps=100)
        self.other = ScriptedEnv()


class Noise:
    """A state that can be called."""

    def __call__(self) -> float:
        return random.random()


class NoisyEnv(ScriptedEnv):
    def __init__(self) -> None:
        super().__init__(n_steps=100)
        self.noise = Noise()
        self.shape = partial(np.reshape, newshape=1)


class RandomActions(gym.Wrapper):
    """Notes an action that its own space has drawn."""

    drawn = 0.0

    def step(self, action: Any) -> Any:
        self.drawn = float(self.action_space.sample()[0])
        return self.env.step(action)


class CountingMonitor(Monitor):
    """Has a state beside that of a Monitor."""

    n_steps = 0

    def step(self, action: Any) -> Any:
        self.n_steps += 1
        return super().step(action)


def _step(venv: Any, n_steps: int) -> None:
    for _ in range(n_steps):
        venv.step(ACTION * venv.num_envs)


def test_a_state_does_not_change_when_the_environment_goes_on() -> None:
    venv = DummyVecEnv([NestedEnv])
    venv.reset()
    _step(venv, 3)
    state = get_env_state(venv)
    _step(venv, 2)
    twin = DummyVecEnv([NestedEnv])
    twin.reset()
    assert set_env_state(twin, state) == []
    assert twin.envs[0].past["seen"] == [[0, 0, 1, 2]]  # type: ignore[attr-defined]
    _step(twin, 2)
    assert twin.envs[0].past == venv.envs[0].past  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("env", "name"), [(EnvInEnv, "other of EnvInEnv, a ScriptedEnv"), (NoisyEnv, "noise of NoisyEnv, a Noise")]
)
def test_half_of_a_state_is_no_state(env: type[gym.Env], name: str) -> None:
    def make() -> Any:
        return VecNormalize(VecFrameStack(VecMonitor(DummyVecEnv([env])), 2))

    venv = make()
    venv.reset()
    _step(venv, 50)
    state = get_env_state(venv)
    assert state["missing"] == [f"the environments: what cannot be taken of them is {name}"]
    twin = make()
    obs = twin.reset()
    missing = set_env_state(twin, state)
    assert missing == state["missing"]
    assert begins_anew(missing)
    assert np.array_equal(twin.get_original_obs(), [[0, 0, 0, 100]])
    assert np.array_equal(twin.venv.stacked_obs.stacked_obs, [[0, 0, 0, 100]])
    assert twin.returns == 0
    assert twin.venv.venv.episode_lengths == 0
    assert np.array_equal(twin.obs_rms.mean, venv.obs_rms.mean)
    assert not np.array_equal(twin.normalize_obs(twin.get_original_obs()), obs)


def test_layers_that_are_attributes_twice_are_no_riddle() -> None:
    class Remembering(gym.Wrapper):
        def __init__(self, env: gym.Env) -> None:
            super().__init__(env)
            self.inner = env.unwrapped

    venv = DummyVecEnv([lambda: Remembering(Monitor(ScriptedEnv()))])
    venv.reset()
    assert get_env_state(venv)["missing"] == []


def test_spaces_draw_on() -> None:
    def make() -> Any:
        return DummyVecEnv([lambda: RandomActions(ScriptedEnv(n_steps=100))])

    venv, twin = make(), make()
    venv.reset()
    _step(venv, 3)
    state = get_env_state(venv)
    twin.reset()
    set_env_state(twin, state)
    for _ in range(3):
        _step(venv, 1)
        _step(twin, 1)
        assert venv.envs[0].drawn == twin.envs[0].drawn != 0


def test_subclasses_of_wrappers_that_everybody_has() -> None:
    venv = DummyVecEnv([lambda: CountingMonitor(ScriptedEnv(n_steps=4))])
    venv.reset()
    _step(venv, 6)
    twin: Any = DummyVecEnv([lambda: CountingMonitor(ScriptedEnv(n_steps=4))])
    twin.reset()
    began = twin.envs[0].t_start
    assert set_env_state(twin, get_env_state(venv)) == []
    assert (twin.envs[0].n_steps, twin.envs[0].rewards, twin.envs[0].t_start) == (6, [1.0, 2.0], began)


def test_bare_environments_in_processes_are_named_and_begin_anew(tmp_path: Path) -> None:
    model = resumable(PPO)("MlpPolicy", SubprocVecEnv([NestedEnv] * 2), **SMALL)
    model.learn(64, callback=Checkpointer(tmp_path, save_freq=32))
    path = newest(tmp_path)
    assert path is not None
    (name,) = read_archive(path).metadata["missing"]
    assert name == "the environments: SubprocVecEnv does not tell their states: wrap them, in a Monitor for instance"
    model = resumable(PPO).load(path, env=model.env)
    with pytest.warns(UserWarning, match="what restarts: the environments: SubprocVecEnv does not tell"):
        model.learn(32, reset_num_timesteps=False)
    model.env.close()


class Stateful(BaseCallback):
    def __init__(self) -> None:
        super().__init__()
        self.n_seen = 0

    def _on_step(self) -> bool:
        self.n_seen += 1
        return True


class Noting(BaseCallback):
    """Notes the steps at which it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []

    def _on_step(self) -> bool:
        self.steps.append(self.num_timesteps)
        return True

    def get_checkpoint(self) -> list[int]:
        return self.steps

    def set_checkpoint(self, state: list[int]) -> None:
        self.steps = state


def _learn(model: Any, n_timesteps: int, noting: Noting, *others: BaseCallback) -> Any:
    used = [EveryNTimesteps(40, noting), StopTrainingOnMaxEpisodes(20), *others]
    return model.learn(n_timesteps - model.num_timesteps, callback=used, reset_num_timesteps=model.num_timesteps == 0)


def test_callbacks_count_on(tmp_path: Path) -> None:
    def make() -> Any:
        return resumable(PPO)("MlpPolicy", DummyVecEnv([lambda: Monitor(ScriptedEnv())]), **SMALL)

    straight, straight_steps = make(), Noting()
    _learn(straight, 1000, straight_steps)
    assert straight.num_timesteps == 20 * 7
    assert straight_steps.steps == [40, 80, 120]
    _learn(make(), 64, Noting(), Checkpointer(tmp_path, save_freq=48))
    cut, steps = resumable(PPO).load(tmp_path / "rl_model_48_steps.zip", env=make().env), Noting()
    _learn(cut, 1000, steps)
    assert (cut.num_timesteps, steps.steps) == (straight.num_timesteps, straight_steps.steps)


def test_a_callback_that_tells_nothing_is_named(tmp_path: Path) -> None:
    model = resumable(PPO)("MlpPolicy", "CartPole-v1", **SMALL)
    model.learn(48, callback=[Stateful(), Checkpointer(tmp_path, save_freq=32)])
    path = tmp_path / "rl_model_32_steps.zip"
    name = "the attributes of Stateful, which has no get_checkpoint"
    assert read_archive(path).metadata["missing"] == [name]
    with pytest.warns(UserWarning, match=name):
        resumable(PPO).load(path, env=model.env).learn(16, callback=Stateful(), reset_num_timesteps=False)
