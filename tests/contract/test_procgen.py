"""What SB3 expects of a VecEnv, asked of Procgen's batch and of its single environments in a DummyVecEnv alike."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from sb3_contrib import RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv, VecFrameStack, VecNormalize

from sb3_hrl.hppo import HPPO
from sb3_hrl.wrappers import ActionHold
from sb3_hrl_plugins.procgen import GAMES
from sb3_hrl_plugins.procgen.vec_env import ProcgenVecEnv
from tests.contract.vec_env_contract import (
    Make,
    check_monitor_files,
    check_nothing_is_overwritten,
    check_seeds,
)

N_ENVS = 3
NO_OP = 4


@pytest.fixture(params=[DummyVecEnv, ProcgenVecEnv], ids=["dummy", "batch"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """``make(game, ...)`` gives a monitored VecEnv of each kind in turn."""
    made: list[VecEnv] = []

    def make_venv(game: str = "maze", n_envs: int = N_ENVS, **kwargs: Any) -> VecEnv:
        kwargs["env_kwargs"] = {"distribution_mode": "easy", **kwargs.get("env_kwargs", {})}
        made.append(make_vec_env(f"procgen-{game}-v0", n_envs=n_envs, vec_env_cls=request.param, **kwargs))
        return made[-1]

    yield make_venv
    for venv in made:
        venv.close()


def _actions(seed: int = 0, n_envs: int = N_ENVS) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(seed)
    while True:
        yield rng.integers(0, 15, n_envs)


def test_shapes_and_types(make: Make) -> None:
    venv = make(seed=0)
    assert venv.observation_space == gym.spaces.Box(0, 255, (64, 64, 3), np.uint8)
    assert venv.action_space == gym.spaces.Discrete(15)
    assert venv.reset().shape == (N_ENVS, 64, 64, 3)
    obs, rewards, dones, infos = venv.step(next(_actions()))
    assert obs.shape == (N_ENVS, 64, 64, 3)
    assert obs.dtype == np.uint8
    assert rewards.shape == dones.shape == (N_ENVS,)
    assert dones.dtype == bool
    assert rewards.dtype == np.float32
    assert all(info["TimeLimit.truncated"] is False for info in infos)
    assert all({type(info[key]) for key in ("level_seed", "prev_level_seed")} == {int} for info in infos)


def test_an_episode_that_ends_is_reset_in_the_same_step(make: Make) -> None:
    venv = make("bossfight", seed=0)
    obs = venv.reset()
    for actions in _actions():
        before = obs
        obs, _, dones, infos = venv.step(actions)
        if dones.any():
            break
    index = int(np.flatnonzero(dones)[0])
    # Procgen does not show the last frame; what stands in for it is said to.
    assert infos[index]["terminal_observation_is_stale"] is True
    assert np.array_equal(infos[index]["terminal_observation"], before[index])
    assert not np.array_equal(obs[index], before[index])
    assert infos[index]["level_seed"] != infos[index]["prev_level_seed"]
    assert infos[index]["TimeLimit.truncated"] is False
    assert infos[index]["is_success"] is False
    assert set(infos[index]["episode"]) == {"r", "l", "t"}
    assert venv.step(next(_actions()))[3][index].get("episode") is None


def test_the_coin_is_a_success(make: Make) -> None:
    venv = make("coinrun", n_envs=8, seed=0)
    venv.reset()
    ends = []
    for _ in range(150):
        _, rewards, dones, infos = venv.step(np.full(8, 8))  # runs to the right and jumps
        ends += [(rewards[index] == 10, infos[index]["is_success"]) for index in np.flatnonzero(dones)]
    assert {is_coin for is_coin, _ in ends} == {True, False}
    assert all(is_coin == is_success for is_coin, is_success in ends)


@pytest.mark.parametrize("truncates", [True, False])
def test_procgen_s_time_limit_is_a_truncation_unless_asked_otherwise(make: Make, truncates: bool) -> None:
    venv = make("maze", seed=0, env_kwargs={} if truncates else {"time_limit_truncates": False})
    venv.reset()
    for n_steps in range(1, 1001):
        _, _, dones, infos = venv.step(np.full(N_ENVS, NO_OP))
        assert dones.tolist() == [n_steps % 500 == 0] * N_ENVS
        assert [info["TimeLimit.truncated"] for info in infos] == [truncates and n_steps % 500 == 0] * N_ENVS
        if dones[0]:
            assert [info["episode"]["l"] for info in infos] == [500] * N_ENVS


def test_seeds(make: Make) -> None:
    check_seeds(make)


def test_a_reset_may_come_early(make: Make) -> None:
    venv = make(seed=0)
    venv.reset()
    levels = [info["level_seed"] for info in venv.reset_infos]
    for _, actions in zip(range(5), _actions(), strict=False):
        venv.step(actions)
    venv.reset()
    assert all(info["level_seed"] != level for info, level in zip(venv.reset_infos, levels, strict=True))
    for _ in range(499):
        assert not venv.step(np.full(N_ENVS, NO_OP))[2].any()
    infos = venv.step(np.full(N_ENVS, NO_OP))[3]
    assert [info["episode"]["l"] for info in infos] == [500] * N_ENVS
    assert [info["TimeLimit.truncated"] for info in infos] == [True] * N_ENVS


def test_the_next_step_overwrites_nothing(make: Make) -> None:
    venv = make("bossfight", seed=0)
    venv.reset()
    check_nothing_is_overwritten(venv, _actions(), 600)


def test_attributes_and_methods_by_index(make: Make) -> None:
    venv = make(seed=0)
    venv.reset()
    assert venv.get_attr("game")[0].timeout == 500
    assert venv.has_attr("game")
    assert not venv.has_attr("no_such_thing")
    venv.set_attr("label", "a")
    venv.set_attr("label", "b", indices=[1])
    assert venv.get_attr("label") == ["a", "b", "a"]
    spec = venv.get_attr("spec", indices=1)[0]
    assert spec.id == "procgen-maze-v0"
    assert spec.kwargs["distribution_mode"] == "easy"
    assert gym.spec("procgen-maze-v0").kwargs == {"env_name": "maze"}
    states = venv.env_method("get_state")
    assert len(set(states)) == N_ENVS
    venv.env_method("set_state", states[0], indices=[2])
    assert venv.env_method("get_state", indices=2) == [states[0]]
    assert venv.env_method("get_state", indices=[1]) == [states[1]]


def test_env_is_wrapped(make: Make) -> None:
    venv = make()
    assert venv.env_is_wrapped(Monitor) == [True] * N_ENVS
    assert venv.env_is_wrapped(ActionHold, indices=0) == [False]


def test_monitor_files(make: Make, tmp_path: Path) -> None:
    venv = make("bossfight", seed=0, monitor_dir=str(tmp_path), monitor_kwargs={"info_keywords": ("is_success", "level_seed")})
    check_monitor_files(venv, _actions(), 300, tmp_path, "level_seed")


def test_the_usual_wrappers(make: Make) -> None:
    venv = VecFrameStack(VecNormalize(make(seed=0), norm_obs=False), 2)
    obs = venv.reset()
    assert isinstance(obs, np.ndarray)
    assert obs.shape == (N_ENVS, 64, 64, 6)
    venv.step(next(_actions()))


def test_render(make: Make) -> None:
    venv = make(seed=0)
    venv.reset()
    image = venv.render("rgb_array")
    assert image.shape == (1024, 1024, 3)  # three pictures on a grid of two by two
    assert image[:512, :512].std() > 10
    state = venv.env_method("get_state", indices=1)[0]
    venv.env_method("set_state", state, indices=0)
    again = venv.render("rgb_array")
    assert np.array_equal(again[:512, :512], image[:512, 512:])
    assert not np.array_equal(again[:512, :512], image[:512, :512])
    assert np.array_equal(again[512:, :512], image[512:, :512])


def test_closing_twice(make: Make) -> None:
    venv = make()
    venv.close()
    venv.close()


# --- the batch against the single environments, number by number


def assert_equal_infos(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        if key == "episode":
            assert (value["r"], value["l"]) == (right[key]["r"], right[key]["l"])
        else:
            assert np.array_equal(value, right[key]), key


@pytest.mark.parametrize("game", GAMES)
def test_a_seed_is_replayed(game: str) -> None:
    """All sixteen games: the same from one seed, singly and in the batch, over the ends of episodes and a reset."""
    kwargs: dict[str, Any] = {"n_envs": 2, "seed": 3, "env_kwargs": {"distribution_mode": "easy", "num_levels": 50}}
    single: Any = make_vec_env(f"procgen-{game}-v0", **kwargs)
    batch: Any = make_vec_env(f"procgen-{game}-v0", vec_env_cls=ProcgenVecEnv, **kwargs)  # type: ignore[arg-type]
    first = single.reset()
    assert np.array_equal(first, batch.reset())
    for n_steps, actions in zip(range(150), _actions(n_envs=2), strict=False):
        if n_steps == 100:
            assert np.array_equal(single.reset(), batch.reset())
        left, right = single.step(actions), batch.step(actions)
        assert all(np.array_equal(one, other) for one, other in zip(left[:3], right[:3], strict=True))
        for one, other in zip(left[3], right[3], strict=True):
            assert_equal_infos(one, other)
        assert single.reset_infos == batch.reset_infos
    for venv in (single, batch):
        assert not np.array_equal(venv.reset(), first)
        venv.seed(3)
        assert np.array_equal(venv.reset(), first)
        venv.close()


# --- what only the batch has


def test_threads_change_nothing() -> None:
    results = []
    for n_threads in (1, 2, 3):
        venv: Any = ProcgenVecEnv("bossfight", 5, {"distribution_mode": "easy"}, n_threads=n_threads)
        venv.seed(1)
        frames = [venv.reset()]
        frames += [venv.step(actions)[0] for _, actions in zip(range(100), _actions(n_envs=5), strict=False)]
        venv.close()
        results.append(np.stack(frames))
    assert np.array_equal(results[0], results[1])
    assert np.array_equal(results[0], results[2])
    assert not np.array_equal(results[0][1], results[0][2])


def test_a_level_that_is_followed_by_the_next_begins_its_time_anew() -> None:
    """With sequential levels an episode outlives its level, and so does its return; the time limit is the level's."""
    venv: Any = ProcgenVecEnv("leaper", 8, {"distribution_mode": "easy", "use_sequential_levels": True, "num_levels": 30})
    venv.seed(0)
    venv.reset()
    n_completed, lengths = 0, np.zeros(8, dtype=int)
    for _, actions in zip(range(1500), _actions(n_envs=8), strict=False):
        actions[actions % 3 == 0] = 5  # mostly upwards
        _, rewards, dones, infos = venv.step(actions)
        lengths += 1
        for index, info in enumerate(infos):
            if info["prev_level_complete"]:
                n_completed += 1
                assert rewards[index] > 0
                assert not dones[index]
                assert venv._n_level_steps[index] == 0
            if dones[index]:
                assert info["episode"]["l"] == lengths[index]
                lengths[index] = 0
    assert n_completed > 0
    venv.close()


def test_pickling_is_refused() -> None:
    venv = ProcgenVecEnv("maze")
    with pytest.raises(TypeError, match="a ProcgenVecEnv cannot be pickled: it owns threads"):
        pickle.dumps(venv)
    venv.close()


@pytest.mark.parametrize("algorithm", [PPO, A2C, DQN, RecurrentPPO, HPPO])
def test_algorithms_train_on_it(algorithm: Any) -> None:
    venv = ProcgenVecEnv("bossfight", 2, {"distribution_mode": "easy"})
    policy = {RecurrentPPO: "CnnLstmPolicy", HPPO: "ImpalaCnnPolicy"}.get(algorithm, "CnnPolicy")
    kwargs = {"learning_starts": 8, "buffer_size": 64} if algorithm is DQN else {"n_steps": 16}
    kwargs |= {"batch_size": 16} if algorithm in (PPO, HPPO, RecurrentPPO) else {}
    model = algorithm(policy, venv, device="cpu", seed=0, **kwargs)
    before = [parameter.clone() for parameter in model.policy.parameters()]
    model.learn(32)
    assert any((old != new).any() for old, new in zip(before, model.policy.parameters(), strict=True))
    test_env = ProcgenVecEnv("bossfight", 1, {"distribution_mode": "easy"})
    reward, _ = evaluate_policy(model, test_env, n_eval_episodes=1)
    assert np.isfinite(reward)
    venv.close()
    test_env.close()
