"""What SB3 expects of a VecEnv, asked of Dummy, Subproc and Native alike."""

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from sb3_contrib import TQC, TRPO, RecurrentPPO
from stable_baselines3 import A2C, PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecCheckNan, VecEnv, VecFrameStack, VecNormalize

from sb3_hrl.errors import NativeError
from sb3_hrl.hppo import HPPO
from sb3_hrl.vec_env import NativeVecEnv, native
from sb3_hrl.vec_env.native_vec_env import MAX_UNSTABLE_IN_A_ROW
from sb3_hrl.wrappers import ActionHold
from tests.contract.vec_env_contract import (
    Make,
    check_monitor_files,
    check_nothing_is_overwritten,
    check_seeds,
    step_until_done,
)

N_ENVS = 3


@pytest.fixture(params=[DummyVecEnv, SubprocVecEnv, NativeVecEnv], ids=["dummy", "subproc", "native"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    """``make(env_id, ...)`` gives a monitored VecEnv of each kind in turn."""
    made: list[VecEnv] = []

    def make_venv(env_id: str = "Hopper-v5", n_envs: int = N_ENVS, **kwargs: Any) -> VecEnv:
        made.append(make_vec_env(env_id, n_envs=n_envs, vec_env_cls=request.param, **kwargs))
        return made[-1]

    yield make_venv
    for venv in made:
        venv.close()


def _actions(venv: VecEnv, seed: int = 0) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(seed)
    space = venv.action_space
    assert isinstance(space, gym.spaces.Box)
    while True:
        yield rng.uniform(space.low, space.high, size=(venv.num_envs, *space.shape)).astype(np.float32)


def _step_until_done(venv: VecEnv) -> tuple[Any, int]:
    return step_until_done(venv, _actions(venv), 300)


def test_shapes_and_types(make: Make) -> None:
    venv = make(seed=0)
    obs = venv.reset()
    assert isinstance(obs, np.ndarray)
    assert obs.shape == (N_ENVS, *(venv.observation_space.shape or ()))
    obs, rewards, dones, infos = venv.step(next(_actions(venv)))
    assert isinstance(obs, np.ndarray)
    assert obs.shape == (N_ENVS, *(venv.observation_space.shape or ()))
    assert obs.dtype == venv.observation_space.dtype == np.float64
    assert rewards.shape == dones.shape == (N_ENVS,)
    assert dones.dtype == bool
    assert np.issubdtype(rewards.dtype, np.floating)
    assert len(infos) == N_ENVS
    assert all(info["TimeLimit.truncated"] is False for info in infos)


def test_an_episode_that_ends_is_reset_in_the_same_step(make: Make) -> None:
    venv = make(seed=0)
    venv.reset()
    (obs, _, _, infos), index = _step_until_done(venv)
    terminal_obs = infos[index]["terminal_observation"]
    assert terminal_obs.shape == obs[index].shape
    # Hopper starts upright at a height of 1.25 (less noise) and has fallen at the end.
    assert obs[index][0] == pytest.approx(1.25, abs=0.01)
    assert terminal_obs[0] != pytest.approx(1.25, abs=0.01)
    assert infos[index]["TimeLimit.truncated"] is False
    assert set(infos[index]["episode"]) == {"r", "l", "t"}
    assert venv.step(next(_actions(venv)))[3][index].get("episode") is None


def test_a_time_limit_is_a_truncation(make: Make) -> None:
    venv = make(seed=0, env_kwargs={"max_episode_steps": 5})
    venv.reset()
    for n_steps in range(1, 11):
        obs, _, dones, infos = venv.step(np.zeros((N_ENVS, 3), dtype=np.float32))
        assert dones.tolist() == [n_steps % 5 == 0] * N_ENVS
        assert [info["TimeLimit.truncated"] for info in infos] == [n_steps % 5 == 0] * N_ENVS
        if dones[0]:
            assert [info["episode"]["l"] for info in infos] == [5] * N_ENVS
            assert not np.array_equal(infos[0]["terminal_observation"], obs[0])


def test_termination_wins_over_truncation(make: Make) -> None:
    """Both at once is no time-out: nothing must be bootstrapped."""
    venv = make(seed=0)
    venv.reset()
    (_, _, _, infos), index = _step_until_done(venv)
    n_steps = infos[index]["episode"]["l"]
    both = make(seed=0, env_kwargs={"max_episode_steps": n_steps})
    both.reset()
    for _, actions in zip(range(n_steps), _actions(both), strict=False):
        _, _, dones, infos = both.step(actions)
    assert dones[index]
    assert infos[index]["TimeLimit.truncated"] is False


def test_seeds(make: Make) -> None:
    first, second = check_seeds(make)
    # Also the resets inside an episode's last step follow from the seed.
    for _, actions in zip(range(100), _actions(first), strict=False):
        left, right = first.step(actions), second.step(actions)
        assert np.array_equal(left[0], right[0])


def test_the_next_step_overwrites_nothing(make: Make) -> None:
    venv = make(seed=0)
    venv.reset()
    check_nothing_is_overwritten(venv, _actions(venv), 300)


def test_attributes_and_methods_by_index(make: Make) -> None:
    venv = make(seed=0)
    venv.reset()
    assert venv.get_attr("dt") == [pytest.approx(0.008)] * N_ENVS
    assert venv.has_attr("dt")
    assert not venv.has_attr("no_such_thing")
    venv.set_attr("label", "a")
    venv.set_attr("label", "b", indices=[1])
    assert venv.get_attr("label") == ["a", "b", "a"]
    assert venv.get_attr("label", indices=1) == ["b"]
    assert [spec.id for spec in venv.get_attr("spec")] == ["Hopper-v5"] * N_ENVS
    states = venv.env_method("state_vector")
    assert len(states) == N_ENVS
    assert not np.array_equal(states[0], states[1])
    assert np.array_equal(venv.env_method("state_vector", indices=[2])[0], states[2])
    qpos, qvel = np.array([0, 1.3, 0, 0, 0, 0]), np.zeros(6)
    venv.env_method("set_state", qpos, qvel, indices=[1])
    assert np.array_equal(venv.env_method("state_vector", indices=1)[0], np.concatenate((qpos, qvel)))
    assert np.array_equal(venv.env_method("state_vector", indices=0)[0], states[0])


def test_env_is_wrapped(make: Make) -> None:
    venv = make(wrapper_class=ActionHold, wrapper_kwargs={"hold_seconds": 0.016})
    assert venv.env_is_wrapped(Monitor) == [True] * N_ENVS
    assert venv.env_is_wrapped(ActionHold, indices=[0, 2]) == [True, True]
    assert venv.env_is_wrapped(gym.wrappers.ClipReward, indices=0) == [False]
    assert make().env_is_wrapped(ActionHold) == [False] * N_ENVS


def test_reset_infos(make: Make) -> None:
    venv = make("HalfCheetah-v5", seed=0, env_kwargs={"max_episode_steps": 3})
    venv.reset()
    starts = [info["x_position"] for info in venv.reset_infos]
    assert len(set(starts)) == N_ENVS
    for _, actions in zip(range(3), _actions(venv), strict=False):
        venv.step(actions)
    assert all(info["x_position"] not in starts for info in venv.reset_infos)


def test_monitor_files(make: Make, tmp_path: Path) -> None:
    venv = make(seed=0, monitor_dir=str(tmp_path), monitor_kwargs={"info_keywords": ("x_position",)})
    check_monitor_files(venv, _actions(venv), 200, tmp_path, "x_position")


def test_the_usual_wrappers(make: Make) -> None:
    venv = VecFrameStack(VecNormalize(VecCheckNan(make(seed=0), raise_exception=True)), 2)
    obs = venv.reset()
    assert isinstance(obs, np.ndarray)
    assert obs.shape == (N_ENVS, 22)
    for _, actions in zip(range(30), _actions(venv), strict=False):
        venv.step(actions)


@pytest.mark.usefixtures("opengl")
def test_render(make: Make) -> None:
    venv = make(seed=0, env_kwargs={"width": 64, "height": 48})
    venv.reset()
    image = venv.render("rgb_array")
    assert image is not None
    assert image.shape == (96, 128, 3)  # three pictures on a grid of two by two
    assert image[:48, :64].std() > 10
    venv.env_method("set_state", np.array([0, 0.3, 1.5, 0, 0, 0]), np.zeros(6), indices=[0])
    again = venv.render("rgb_array")
    assert again is not None
    assert not np.array_equal(image[:48, :64], again[:48, :64])
    assert np.array_equal(image[:48, 64:], again[:48, 64:])


def test_closing_twice(make: Make) -> None:
    venv = make()
    venv.close()
    venv.close()


def test_annealed_hold(make: Make) -> None:
    hold = {"start_seconds": 0.04, "end_seconds": 0.008, "anneal_decisions": 4}
    venv = make(seed=0, wrapper_class=ActionHold, wrapper_kwargs=hold)
    venv.reset()
    lengths = []
    for _ in range(6):
        infos = venv.step(np.zeros((N_ENVS, 3), dtype=np.float32))[3]
        lengths.append([info["n_held"] for info in infos])
    assert lengths == [[n] * N_ENVS for n in (5, 4, 3, 2, 1, 1)]
    assert venv.get_attr("hold_decisions") == [6] * N_ENVS
    venv.env_method("configure_hold", 0.9, 2)
    assert venv.get_attr("gamma") == [0.9] * N_ENVS
    assert venv.step(np.zeros((N_ENVS, 3), dtype=np.float32))[3][0]["n_held"] == 3


# --- native against Dummy, number by number


@pytest.mark.parametrize("hold_seconds", [None, 0.15])
def test_native_equals_dummy_step_by_step(hold_seconds: float | None) -> None:
    kwargs: dict[str, Any] = {"env_kwargs": {"max_episode_steps": 30}}
    if hold_seconds:
        kwargs |= {"wrapper_class": ActionHold, "wrapper_kwargs": {"hold_seconds": hold_seconds}}
    dummy: Any = make_vec_env("HalfCheetah-v5", n_envs=2, seed=0, **kwargs)
    fast: Any = make_vec_env("HalfCheetah-v5", n_envs=2, seed=0, vec_env_cls=NativeVecEnv, **kwargs)  # type: ignore[arg-type]
    assert isinstance(fast, NativeVecEnv)
    dummy.reset(), fast.reset()
    if hold_seconds:
        for venv in (dummy, fast):
            venv.env_method("configure_hold", 0.97, 0)
    for n_steps, actions in zip(range(100), _actions(dummy), strict=False):
        if n_steps % (30 if hold_seconds is None else 10) == 0:  # their random resets differ: put both into one state
            _copy_states(dummy, fast)
        expected, got = dummy.step(actions), fast.step(actions)
        is_done = expected[2]
        assert np.array_equal(is_done, got[2])
        assert np.array_equal(expected[1], got[1])
        assert np.array_equal(np.asarray(expected[0])[~is_done], got[0][~is_done])
        for left, right in zip(expected[3], got[3], strict=True):
            assert left.keys() == right.keys()
            for key in left.keys() - {"terminal_observation", "episode", "hold_episode"}:
                assert left[key] == right[key], key
            if "episode" in left:
                assert np.array_equal(left["terminal_observation"], right["terminal_observation"])
                assert (left["episode"]["r"], left["episode"]["l"]) == (right["episode"]["r"], right["episode"]["l"])


def _copy_states(source: VecEnv, target: VecEnv) -> None:
    for index in range(source.num_envs):
        (state,) = source.env_method("state_vector", indices=index)
        qpos, qvel = state[:9], state[9:]
        for venv in (source, target):
            venv.env_method("set_state", qpos, qvel, indices=index)


# --- what only the native one has


def test_by_id() -> None:
    venv = NativeVecEnv("HalfCheetah-v5", n_envs=4, env_kwargs={"ctrl_cost_weight": 0.0}, n_threads=2)
    venv.reset()
    infos = venv.step(np.ones((4, 6), dtype=np.float32))[3]
    assert all(info["reward_ctrl"] == 0 for info in infos)
    venv.close()


def test_pickling_is_refused() -> None:
    venv = NativeVecEnv("Hopper-v5")
    with pytest.raises(TypeError, match="a NativeVecEnv cannot be pickled: it owns threads"):
        pickle.dumps(venv)
    venv.close()


def test_a_state_goes_on_bit_for_bit() -> None:
    first: Any = NativeVecEnv("Ant-v5", n_envs=2)
    second: Any = NativeVecEnv("Ant-v5", n_envs=2, n_threads=1)
    first.seed(1), second.seed(2)
    first.reset(), second.reset()
    actions = _actions(first)
    for _ in range(40):
        first.step(next(actions))
    second.set_state(first.get_state())
    for _ in range(300):
        batch = next(actions)
        left, right = first.step(batch), second.step(batch)
        for one, other in zip(left[:3], right[:3], strict=True):
            assert np.array_equal(one, other)
    first.close()
    second.close()


def test_a_simulation_that_breaks_down_is_reset_and_reported() -> None:
    venv: Any = NativeVecEnv("Hopper-v5", n_envs=2)
    venv.seed(5)
    venv.reset()
    for n_times in range(1, MAX_UNSTABLE_IN_A_ROW):
        venv.env_method("set_state", np.array([0, 1.25, 0, 0, 0, 0]), np.full(6, 1e30), indices=[1])
        with pytest.warns(
            RuntimeWarning, match=rf"Hopper-v5, environment 1 \(seed 6, step {n_times}\): the simulation broke down"
        ):
            obs, rewards, dones, infos = venv.step(np.zeros((2, 3), dtype=np.float32))
        assert dones.tolist() == [False, True]
        assert infos[1]["unstable"]
        assert not infos[1]["TimeLimit.truncated"]
        assert all(np.isfinite(array).all() for array in (obs, rewards, infos[1]["terminal_observation"]))
    venv.env_method("set_state", np.array([0, 1.25, 0, 0, 0, 0]), np.full(6, 1e30), indices=[1])
    with pytest.raises(NativeError, match=rf"environment 1 .* broke down in {MAX_UNSTABLE_IN_A_ROW} episodes in a row"):
        venv.step(np.zeros((2, 3), dtype=np.float32))
    venv.close()


@pytest.mark.parametrize(
    ("make_venv", "reason"),
    [
        (lambda: make_vec_env("CartPole-v1"), "CartPole-v1 has no native form"),
        (
            lambda: make_vec_env("Hopper-v5", wrapper_class=gym.wrappers.FlattenObservation),
            "the wrapper FlattenObservation has",
        ),
        (lambda: make_vec_env("Hopper-v5", monitor_kwargs={"allow_early_resets": False}), "allow_early_resets"),
        (lambda: VecNormalize(make_vec_env("Hopper-v5")), "a VecNormalize has no native form"),
        (lambda: make_vec_env("Hopper-v5", vec_env_cls=SubprocVecEnv), "where a SubprocVecEnv has its monitor files"),
        (
            lambda: DummyVecEnv([lambda: gym.make("Hopper-v5"), lambda: gym.make("Hopper-v5", reset_noise_scale=0.1)]),
            "and equal",
        ),
    ],
)
def test_without_a_native_form_the_ordinary_one_stays(make_venv: Callable[[], VecEnv], reason: str) -> None:
    venv = make_venv()
    with pytest.warns(UserWarning, match=rf"vec_env_wrapper 'native': .*{reason}.*is used as it is"):
        assert native(venv) is venv
    venv.reset()
    venv.step(np.array([venv.action_space.sample()] * venv.num_envs))
    venv.close()


@pytest.mark.parametrize("algorithm", [PPO, A2C, SAC, TRPO, TQC, RecurrentPPO, HPPO])
@pytest.mark.parametrize("hold_seconds", [None, 0.024], ids=["step", "hold"])
def test_algorithms_train_on_it(algorithm: Any, hold_seconds: float | None) -> None:
    hold = None if hold_seconds is None else {"hold_seconds": hold_seconds}
    venv = NativeVecEnv("Hopper-v5", n_envs=2, hold=hold)
    policy = "MlpLstmPolicy" if algorithm is RecurrentPPO else "MlpPolicy"
    kwargs = {"learning_starts": 20} if algorithm in (SAC, TQC) else {"n_steps": 64}
    model = algorithm(policy, venv, device="cpu", seed=0, **kwargs)
    before = [parameter.clone() for parameter in model.policy.parameters()]
    model.learn(128)
    assert any((old != new).any() for old, new in zip(before, model.policy.parameters(), strict=True))
    reward, _ = evaluate_policy(model, NativeVecEnv("Hopper-v5", hold=hold), n_eval_episodes=2)
    assert np.isfinite(reward)
    venv.close()
