"""Procgen's games: their options, time limits, states; and what is seen of them by those who do not use them."""

import importlib.util
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecNormalize

from sb3_hrl import native
from sb3_hrl.errors import MissingExtraError
from sb3_hrl.extras import check_extra
from sb3_hrl.vec_env.recipe import monitor_folder
from sb3_hrl.wrappers import ActionHold
from sb3_hrl.zoo.validation import ConfigError, check_env_kwargs
from sb3_hrl_plugins.procgen import GAMES
from sb3_hrl_plugins.procgen.game import MODES, Game
from sb3_hrl_plugins.procgen.vec_env import ProcgenVecEnv, procgen

EASY: dict[str, Any] = {"distribution_mode": "easy"}
MESSAGE = r"needs Procgen.s games, which come with the extra \"procgen\": pip install \"sb3-hrl\[procgen\]\""
FIND_SPEC = importlib.util.find_spec


def _actions(n_envs: int, seed: int = 0) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(seed)
    while True:
        yield rng.integers(0, 15, n_envs)


# --- without the extra ---------------------------------------------------------------------------------------------------


def test_registering_imports_neither_gym_nor_procgen() -> None:
    code = (
        "import sys, gymnasium as gym\n"
        "import sb3_hrl_plugins.procgen.env_ids\n"
        "assert sum(name.startswith('procgen-') for name in gym.registry) == 16\n"
        "assert not {'gym', 'gym3', 'procgen', 'shimmy'} & set(sys.modules), set(sys.modules)"
    )
    process = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_all_but_procgen(name: str, package: str | None = None) -> Any:
        return None if name == "procgen" else FIND_SPEC(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_all_but_procgen)
    for make in (
        lambda: check_extra("procgen-ninja-v0"),
        lambda: gym.make("procgen-ninja-v0"),
        lambda: ProcgenVecEnv("ninja", 2),
    ):
        with pytest.raises(MissingExtraError, match=f"procgen-ninja-v0 {MESSAGE}"):
            make()


@pytest.mark.parametrize("algorithm", ["hppo", "ppo"])
def test_without_the_extra_the_zoo_creates_nothing(tmp_path: Path, algorithm: str) -> None:
    code = f"""\
import importlib.util, runpy, sys
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "procgen" else find_spec(name, package)
sys.argv = ["train", "--algo", "{algorithm}", "--env", "procgen-ninja-v0"]
runpy.run_module("rl_zoo3.train", run_name="__main__")
"""
    process = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.returncode == 2, process.stderr
    assert 'procgen-ninja-v0 needs Procgen\'s games, which come with the extra "procgen"' in process.stderr
    assert list(tmp_path.iterdir()) == []


# --- options -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env_name": "coinrum"}, "Procgen: there is no game 'coinrum', did you mean 'coinrun'?"),
        ({"num_level": 3}, "Procgen: there is no option 'num_level', did you mean 'num_levels'?"),
        ({"num_levels": -1}, r"procgen-coinrun-v0: num_levels: expected a whole number from 0 to 2147483647, got -1"),
        ({"num_levels": 2.5}, "num_levels: expected a whole number from 0 to 2147483647, got 2.5"),
        ({"num_levels": True}, "num_levels: expected a whole number from 0 to 2147483647, got True"),
        ({"start_level": 2**31, "num_levels": 1}, "start_level: expected a whole number"),
        ({"start_level": 2**31 - 5, "num_levels": 10}, r"start_level \+ num_levels: expected at most 2147483647"),
        ({"start_level": 500}, "start_level: 500 would have no effect, since num_levels is 0, which means all levels"),
        ({"distribution_mode": "eazy"}, "distribution_mode: expected 'easy' or 'hard' or 'exploration', got 'eazy'"),
        ({"distribution_mode": "memory"}, "distribution_mode: expected 'easy' or 'hard' or 'exploration', got 'memory'"),
        ({"distribution_mode": "exploration", "num_levels": 1}, "num_levels: 'exploration' has one level of its own, got 1"),
        ({"use_backgrounds": "no"}, "use_backgrounds: expected true or false, got 'no'"),
    ],
)
def test_what_procgen_would_die_of_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Game.from_kwargs(**{"env_name": "coinrun", **options})
    game = options.pop("env_name", "coinrun")
    for make in (
        lambda: ProcgenVecEnv(game, 1, options),
        lambda: gym.make("procgen-coinrun-v0", **{"env_name": game, **options}),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_a_config_s_options_are_checked_before_anything_is_built() -> None:
    check_env_kwargs("procgen-maze-v0", "env_kwargs", {"distribution_mode": "memory", "num_levels": 3})
    check_env_kwargs("procgen-maze-v0", "env_kwargs", None)
    check_env_kwargs("CartPole-v1", "env_kwargs", {"anything": 1})  # it has no check of its own
    with pytest.raises(ConfigError, match="error: eval_env_kwargs: procgen-maze-v0: distribution_mode: expected 'easy'"):
        check_env_kwargs("procgen-maze-v0", "eval_env_kwargs", {"distribution_mode": "extreme"})


def test_the_number_of_environments_is_checked() -> None:
    with pytest.raises(ValueError, match="n_envs: expected a whole number of at least 1, got 0"):
        ProcgenVecEnv("coinrun", 0)


def test_every_accepted_mode_runs() -> None:
    for mode, games in MODES.items():
        for game in games:
            batch = Game(game, distribution_mode=mode).make_batch(1, 0)
            assert batch.observe()[1]["rgb"].std() > 0
            batch.close()


def test_levels() -> None:
    for options, levels in (({"num_levels": 3, "start_level": 7}, {7, 8, 9}), ({}, None)):
        venv = ProcgenVecEnv("bossfight", 4, EASY | options)
        venv.seed(0)
        venv.reset()
        seen = {info["level_seed"] for info in venv.reset_infos}
        for _ in range(20):
            venv.reset()
            seen |= {info["level_seed"] for info in venv.reset_infos}
        assert seen == levels if levels else len(seen) > 50
        venv.close()


# --- time limits ---------------------------------------------------------------------------------------------------------


def _has_clock(state: bytes, timeout: int, n_steps: int) -> bool:
    """Whether Procgen's own state has these two numbers where it keeps them, the limit nine integers before the clock."""
    wanted = struct.pack("<i", timeout)
    offset = state.find(wanted)
    while offset >= 0:
        if state[offset + 36 : offset + 40] == struct.pack("<i", n_steps):
            return True
        offset = state.find(wanted, offset + 1)
    return False


def test_the_table_of_time_limits_is_procgen_s() -> None:
    n_others = 0
    for mode in ("easy", "hard", "extreme", "memory"):
        for name in MODES[mode]:
            game = Game(name, distribution_mode=mode)
            batch = game.make_batch(1, 3)
            batch.observe()
            for _ in range(3):
                batch.act(np.array([4]))
                batch.observe()
            (state,) = batch.get_state()
            batch.close()
            assert _has_clock(state, game.timeout, 3), (name, mode)
            assert not _has_clock(state, game.timeout + 1, 3)
            assert not _has_clock(state, game.timeout, 4)
            n_others += game.timeout != 1000
    assert n_others == 13


# --- states --------------------------------------------------------------------------------------------------------------


def _play(venv: Any, n_steps: int, seed: int) -> list[Any]:
    return [venv.step(actions) for _, actions in zip(range(n_steps), _actions(venv.num_envs, seed), strict=False)]


def _assert_same_play(left: list[Any], right: list[Any]) -> None:
    for one, other in zip(left, right, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one[:3], other[:3], strict=True))
        for info, other_info in zip(one[3], other[3], strict=True):
            assert info.get("episode", {}).get("r") == other_info.get("episode", {}).get("r")
            assert info.get("episode", {}).get("l") == other_info.get("episode", {}).get("l")
            assert info["TimeLimit.truncated"] == other_info["TimeLimit.truncated"]
            assert np.array_equal(info.get("terminal_observation", 0), other_info.get("terminal_observation", 0))


@pytest.mark.parametrize("game", ["bossfight", "leaper", "fruitbot"])
def test_a_state_goes_on_bit_for_bit(game: str) -> None:
    first, second = (ProcgenVecEnv(game, 3, EASY, n_threads=n_threads) for n_threads in (2, 1))
    first.seed(1)
    first.reset(), second.reset()
    _play(first, 60, 0)
    states = first.get_state()
    expected = _play(first, 600, 1)
    assert sum(step[2].sum() for step in expected) > 3
    second.set_state(states)
    _assert_same_play(expected, _play(second, 600, 1))
    # Some of them, elsewhere.
    second.set_state(states[:2], indices=[2, 0])
    again = _play(second, 1, 1)[0][0]
    second.set_state(states)
    assert np.array_equal(_play(second, 1, 1)[0][0][1], expected[0][0][1])
    assert not np.array_equal(again, expected[0][0])
    first.close()
    second.close()


def test_a_state_from_before_the_first_reset() -> None:
    first, second = (ProcgenVecEnv("maze", 2, EASY) for _ in range(2))
    assert not np.array_equal(first._obs, second._obs)  # no seed was given
    second.set_state(first.get_state())
    assert np.array_equal(second.reset(), first.reset())
    second.set_state(first.get_state())
    # From then on a reset means other levels.
    shown = first._obs
    assert not np.array_equal(first.reset(), shown)
    assert np.array_equal(second.reset(), first._obs)
    first.close()
    second.close()


def test_threads_are_those_that_the_process_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    make_batch = Game.make_batch

    def note(game: Game, n_envs: int, seed: int | None, n_threads: int = 0, **kwargs: Any) -> Any:
        seen.append(n_threads)
        return make_batch(game, n_envs, seed, n_threads, **kwargs)

    monkeypatch.setattr(Game, "make_batch", note)
    allowed = os.sched_getaffinity(0)
    try:
        for cpus in (allowed, {min(allowed)}):
            os.sched_setaffinity(0, cpus)
            ProcgenVecEnv("maze", 8, EASY).close()
    finally:
        os.sched_setaffinity(0, allowed)
    n_threads = min(8, native.build_info().available_cpus)
    assert seen == [n_threads if n_threads > 1 else 0, 0]  # one is the caller's own


def test_a_state_goes_on_in_another_process(tmp_path: Path) -> None:
    venv = ProcgenVecEnv("bossfight", 2, EASY)
    venv.seed(5)
    venv.reset()
    _play(venv, 50, 0)
    for index, state in enumerate(venv.get_state()):
        (tmp_path / f"{index}.state").write_bytes(state)
    expected = np.stack([step[0] for step in _play(venv, 100, 1)])
    venv.close()
    code = f"""\
import numpy as np
from pathlib import Path
from sb3_hrl_plugins.procgen.vec_env import ProcgenVecEnv
venv = ProcgenVecEnv("bossfight", 2, {EASY})
venv.set_state([Path("%d.state" % index).read_bytes() for index in range(2)])
rng = np.random.default_rng(1)
np.save("frames.npy", np.stack([venv.step(rng.integers(0, 15, 2))[0] for _ in range(100)]))
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True)
    frames = np.load(tmp_path / "frames.npy")
    assert np.array_equal(frames, expected)
    assert not np.array_equal(frames[0], frames[1])


def test_a_state_of_something_else_is_refused() -> None:
    venv = ProcgenVecEnv("maze", 2, EASY)
    venv.seed(0)
    before = venv.reset()
    states = venv.get_state()
    damaged = bytearray(states[1])
    damaged[-100] ^= 1
    hard = ProcgenVecEnv("maze", 1, {"distribution_mode": "hard"})
    for bad, message in (
        (bytes(damaged), "procgen-maze-v0: the saved state is damaged: its checksum"),
        (states[1][:-1], "the saved state is damaged"),
        (b"", "the saved state is damaged"),
        (hard.get_state()[0], "the saved state is of another game: distribution_mode: expected 'easy', got 'hard'"),
    ):
        with pytest.raises(ValueError, match=message):
            venv.set_state([states[1], bad])
    # The first one was good, and has not been set either.
    assert venv.get_state() == states
    assert np.array_equal(before, venv._obs)
    hard.close()
    venv.close()


def test_a_single_environment_goes_on_bit_for_bit() -> None:
    first: Any = gym.make("procgen-maze-v0", **EASY)
    second: Any = gym.make("procgen-maze-v0", **EASY)
    first.reset(seed=1), second.reset(seed=2)
    for _ in range(30):
        first.step(4)
    second.unwrapped.set_state(first.unwrapped.get_state())
    n_steps = 0
    is_over = False
    while not is_over:
        left, right = first.step(4), second.step(4)
        assert np.array_equal(left[0], right[0])
        assert left[1:] == right[1:]
        is_over, n_steps = left[3], n_steps + 1
    assert n_steps == 470
    assert np.array_equal(first.reset()[0], second.reset()[0])


# --- the swap ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("vec_env_cls", [DummyVecEnv, SubprocVecEnv])
def test_the_swap_keeps_seeds_and_monitor_files(tmp_path: Path, vec_env_cls: Any) -> None:
    kwargs: dict[str, Any] = {"n_envs": 2, "seed": 3, "env_kwargs": EASY}
    with monitor_folder(str(tmp_path)):
        # With its module's name, which a new process imports.
        name = "sb3_hrl_plugins.procgen:procgen-bossfight-v0"
        swapped = procgen(make_vec_env(name, monitor_dir=str(tmp_path), vec_env_cls=vec_env_cls, **kwargs))
    assert isinstance(swapped, ProcgenVecEnv)
    plain = make_vec_env("procgen-bossfight-v0", **kwargs)
    assert np.array_equal(np.asarray(swapped.reset()), np.asarray(plain.reset()))
    _play(swapped, 200, 0)
    swapped.close()
    plain.close()
    assert len((tmp_path / "1.monitor.csv").read_text().splitlines()) > 3


@pytest.mark.parametrize(
    ("make_venv", "reason"),
    [
        (lambda: make_vec_env("CartPole-v1"), "CartPole-v1 is not one of Procgen's games"),
        (
            lambda: make_vec_env("procgen-maze-v0", wrapper_class=ActionHold, wrapper_kwargs={"hold_seconds": 0.2, "dt": 0.1}),
            "an ActionHold has no batch form",
        ),
        (lambda: make_vec_env("procgen-maze-v0", env_kwargs={"max_episode_steps": 9}), "max_episode_steps has no batch form"),
        (lambda: VecNormalize(make_vec_env("procgen-maze-v0"), norm_obs=False), "a VecNormalize has no native form"),
    ],
)
def test_without_a_batch_the_ordinary_one_stays(make_venv: Any, reason: str) -> None:
    venv: VecEnv = make_venv()
    with pytest.warns(UserWarning, match=rf"vec_env_wrapper 'procgen': .*{reason}.*is used as it is"):
        assert procgen(venv) is venv
    venv.reset()
    venv.step(np.zeros(1, dtype=int))
    venv.close()


def test_sixteen_games() -> None:
    assert len(set(GAMES)) == 16
    assert {f"procgen-{game}-v0" for game in GAMES} <= set(gym.registry)
