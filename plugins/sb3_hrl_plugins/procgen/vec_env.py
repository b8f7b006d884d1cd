"""An SB3 VecEnv over Procgen's own batch, and ``vec_env_wrapper: procgen``."""

import copy
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

from sb3_hrl.envs.task import NoNativeForm
from sb3_hrl.threads import available_threads
from sb3_hrl.vec_env.batch import BatchVecEnv
from sb3_hrl.vec_env.recipe import Recipe, read_recipe
from sb3_hrl_plugins.procgen.env_ids import GAMES, PROCGEN, env_id
from sb3_hrl_plugins.procgen.game import INFO_KEYS, METADATA, RESET_ACTION, Game, Painter, end_info

_STATE_SIZE = 2**20  # as large as Procgen's own limit


class ProcgenVecEnv(BatchVecEnv):
    """
    Many environments of one game on Procgen's worker threads, behind SB3's VecEnv interface.

    An environment that ends shows its next level in the same step; its infos hold ``TimeLimit.truncated``, ``episode`` and
    ``is_success`` (whether the level was completed). Procgen never shows an episode's last frame: ``terminal_observation`` is
    the frame before it, and ``terminal_observation_is_stale`` says so. Observations are Procgen's own bytes [E, 64, 64, 3],
    uint8; every array that ``step`` returns is new. The number of threads changes no result. A seed gives the same games as it
    gives ``ProcgenEnv``.

    :param env: an id, a game's name, or, as ``make_vec_env(..., vec_env_cls=ProcgenVecEnv)`` calls it, a list of functions
        that each build a ``ProcgenEnv``; these then say all that follows but ``n_threads``
    :param n_envs: number of environments
    :param env_kwargs: the options of the game, see ``Game``
    :param info_keywords: keys of ``info`` that go into ``episode`` and into the monitor files
    :param monitor_files: one file for each environment, or None for no files
    :param n_threads: worker threads; by default as many as this process may use: by CPU affinity and quota; one in an actor
    """

    def __init__(
        self,
        env: str | Sequence[Callable[[], gym.Env]],
        n_envs: int = 1,
        env_kwargs: Mapping[str, Any] | None = None,
        info_keywords: Iterable[str] = (),
        monitor_files: Sequence[str] | None = None,
        n_threads: int | None = None,
    ) -> None:
        if not isinstance(env, str):
            venv = DummyVecEnv(list(env))
            recipe = _read_procgen_recipe(venv)
            venv.close()
            self.__init__(**_arguments(recipe), n_threads=n_threads)  # type: ignore[misc]
            return
        if n_envs < 1:
            raise ValueError(f"ProcgenVecEnv: n_envs: expected a whole number of at least 1, got {n_envs}")
        self.game = Game.from_kwargs(**{"env_name": env.removeprefix("procgen-").removesuffix("-v0"), **(env_kwargs or {})})
        self.env_kwargs = dict(env_kwargs or {})
        PROCGEN.require(env_id(self.game.env_name))
        self._painter = Painter(self.game)
        if n_threads is None:
            n_threads = min(n_envs, available_threads())
        # One thread is the caller's own.
        self._batch = self.game.make_batch(n_envs, None, n_threads if n_threads > 1 else 0)
        self._obs = self._observe()[1]
        self._is_new = True
        self._n_level_steps = np.zeros(n_envs, dtype=np.int64)
        self._episode_lengths = np.zeros(n_envs, dtype=np.int64)
        self._episode_returns = np.zeros(n_envs)
        views = [ProcgenView(self, index) for index in range(n_envs)]
        super().__init__(views, env_id(self.game.env_name), info_keywords, monitor_files)

    def _observe(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rewards, obs, is_first = self._batch.observe()
        return rewards, obs["rgb"], is_first

    def reset(self) -> np.ndarray:
        if any(seed is not None for seed in self._seeds):
            self._set_seeds(self._seeds)
        elif not self._is_new:
            self._batch.act(np.full(self.num_envs, RESET_ACTION))
        self._is_new = False
        for counter in (self._n_level_steps, self._episode_lengths, self._episode_returns):
            counter[:] = 0
        self._obs = self._observe()[1]
        self.reset_infos = [self.game.make_info(info) for info in self._batch.get_info()]
        self._reset_seeds()
        self._reset_options()
        return self._obs

    def _set_seeds(self, seeds: Sequence[int | None]) -> None:
        """A batch takes one seed, when it is built; but the state of a single game, with a seed of its own, fits into it."""
        for index, seed in enumerate(seeds):
            single = self.game.make_batch(1, seed)
            self._set_procgen_state(index, single.get_state()[0])
            single.close()

    def step_wait(self) -> VecEnvStepReturn:
        actions = self._take_actions()
        before = self._obs
        self._is_new = False
        self._batch.act(np.asarray(actions).reshape(self.num_envs))
        rewards, self._obs, dones = self._observe()
        infos = [self.game.make_info(info) for info in self._batch.get_info()]
        for info in infos:
            info["TimeLimit.truncated"] = False
        is_complete = np.array([info["prev_level_complete"] for info in infos], dtype=bool)
        self._n_level_steps += 1
        self._episode_lengths += 1
        self._episode_returns += rewards
        is_timeout = dones & ~is_complete & (self._n_level_steps >= self.game.timeout)
        is_truncated = is_timeout & self.game.time_limit_truncates
        for index in np.flatnonzero(dones).tolist():
            info = infos[index]
            info |= end_info(bool(is_complete[index]))
            episode = self._episode_returns[index], self._episode_lengths[index]
            self._end_episode(index, info, bool(is_truncated[index]), before[index], *episode)
            self.reset_infos[index] = {key: info[key] for key in INFO_KEYS}
        self._n_level_steps[dones | is_complete] = 0
        self._episode_lengths[dones] = 0
        self._episode_returns[dones] = 0
        return self._obs, rewards, dones, infos

    @property
    def recipe(self) -> dict[str, Any]:
        """Arguments that make the same environments, without the monitor files."""
        game = env_id(self.game.env_name)
        keywords = list(self._info_keywords)
        return {"env": game, "n_envs": self.num_envs, "env_kwargs": self.env_kwargs, "info_keywords": keywords}

    def get_state(self, indices: VecEnvIndices = None) -> list[bytes]:
        """
        :param indices: which environments
        :return: all that decides how each one goes on: Procgen's state with its random numbers, counters, a checksum
        """
        return [
            self.game.pack_state(
                self._get_procgen_state(index),
                {
                    "is_new": self._is_new,
                    "n_level_steps": int(self._n_level_steps[index]),
                    "episode_length": int(self._episode_lengths[index]),
                    "episode_return": float(self._episode_returns[index]),
                },
            )
            for index in self._get_indices(indices)
        ]

    def set_state(self, states: Sequence[bytes], indices: VecEnvIndices = None) -> None:
        """
        Go on as another ProcgenVecEnv of the same game and options would, bit for bit, in another process too.

        :param states: what ``get_state`` returned
        :param indices: which environments
        :raises ValueError: if one is damaged, or of another game; then none is set
        """
        where = list(self._get_indices(indices))
        unpacked = [self.game.unpack_state(record) for record in states]
        for index, (state, counters) in zip(where, unpacked, strict=True):
            self._set_procgen_state(index, state)
            self._n_level_steps[index] = counters["n_level_steps"]
            self._episode_lengths[index] = counters["episode_length"]
            self._episode_returns[index] = counters["episode_return"]
        self._obs = self._observe()[1]
        is_whole = len(where) == self.num_envs
        self._is_new = (is_whole or self._is_new) and all(counters["is_new"] for _, counters in unpacked)

    def _get_procgen_state(self, index: int) -> bytes:
        buffer = self._batch._ffi.new(f"char[{_STATE_SIZE}]")
        size = self._batch.call_c_func("get_state", index, buffer, _STATE_SIZE)
        return bytes(self._batch._ffi.buffer(buffer, size))

    def _set_procgen_state(self, index: int, state: bytes) -> None:
        self._batch.call_c_func("set_state", index, state, len(state))

    def close(self) -> None:
        self._batch.close()
        self._painter.close()
        super().close()


class ProcgenView:
    """
    One environment of the batch, as far as it can be looked at on its own.

    :param venv: the batch
    :param index: which one
    """

    def __init__(self, venv: ProcgenVecEnv, index: int) -> None:
        self._venv, self._index = venv, index
        self.game = venv.game
        self.observation_space: gym.Space = spaces.Box(0, 255, (64, 64, 3), np.uint8)
        self.action_space: gym.Space = spaces.Discrete(15)
        self.render_mode = "rgb_array"
        self.metadata = dict(METADATA)
        self.spec = copy.deepcopy(gym.spec(env_id(venv.game.env_name)))  # not the registry's own
        self.spec.kwargs |= venv.env_kwargs

    def get_wrapper_attr(self, name: str) -> Any:
        """An attribute of this view: the game itself is not a Python object."""
        return getattr(self, name)

    def render(self) -> np.ndarray:
        """A picture of this environment [512, 512, 3]."""
        return self._venv._painter.paint(self._venv._get_procgen_state(self._index))

    def get_state(self) -> bytes:
        """See ``ProcgenVecEnv.get_state``."""
        return self._venv.get_state(self._index)[0]

    def set_state(self, record: bytes) -> None:
        """See ``ProcgenVecEnv.set_state``."""
        self._venv.set_state([record], self._index)

    def close(self) -> None:
        """The batch's pictures are closed with the batch."""


def procgen(venv: VecEnv) -> VecEnv:
    """
    Swap a VecEnv of ``ProcgenEnv`` that the zoo or ``make_vec_env`` built for one batch, with its seeds and monitor files.

    :param venv: a Dummy or Subproc VecEnv; it is closed
    :return: a ``ProcgenVecEnv``; or the VecEnv itself, after a warning that says why there is no batch
    """
    try:
        recipe = _read_procgen_recipe(venv)
    except NoNativeForm as reason:
        warnings.warn(f"vec_env_wrapper 'procgen': {reason}; the {type(venv).__name__} is used as it is")
        return venv
    # First the old one: both have the same monitor files.
    venv.close()
    env = ProcgenVecEnv(**_arguments(recipe))
    env._seeds, env._options = venv._seeds, venv._options
    return env


def _read_procgen_recipe(venv: VecEnv) -> Recipe:
    recipe = read_recipe(venv, _info_keys)
    if recipe.hold is not None:
        raise NoNativeForm("an ActionHold has no batch form: all environments of a batch step together")
    return recipe


def _info_keys(spec: EnvSpec, env_kwargs: dict[str, Any]) -> Collection[str]:
    if spec.id not in map(env_id, GAMES):
        raise NoNativeForm(f"{spec.id} is not one of Procgen's games")
    if spec.max_episode_steps is not None:
        raise NoNativeForm("max_episode_steps has no batch form: Procgen has time limits of its own")
    return (*INFO_KEYS, "is_success")


def _arguments(recipe: Recipe) -> dict[str, Any]:
    """Of ``ProcgenVecEnv``: the recipe's but for the hold, the time limit and the render mode, of which it has no choice."""
    left_out = ("hold", "max_episode_steps", "render_mode")
    return {name: value for name, value in recipe._asdict().items() if name not in left_out}
