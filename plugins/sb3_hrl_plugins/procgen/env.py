"""One game of Procgen as a gymnasium environment."""

from typing import Any

import gymnasium
import numpy as np
from shimmy.openai_gym_compatibility import GymV21CompatibilityV0

from sb3_hrl_plugins.procgen.env_ids import PROCGEN, env_id
from sb3_hrl_plugins.procgen.game import METADATA, RESET_ACTION, Game, Painter, as_procgen_seed, end_info, load_procgen


class ProcgenEnv(GymV21CompatibilityV0):
    """
    Procgen through shimmy, with ``reset`` repaired: a seed is honoured (Procgen takes one at construction only, so another
    game is built), and an episode may be reset before its end. ``ProcgenVecEnv`` with the same seeds plays the same games.

    Procgen's time limits are truncations, unless ``time_limit_truncates`` is False. Of an episode's last frame see
    ``end_info``.

    :param env_name: one of ``GAMES``
    :param render_mode: ``rgb_array`` for pictures of 512 x 512 pixels; they cost something only when they are asked for
    :param options: see ``Game``
    """

    metadata = METADATA

    def __init__(self, env_name: str, render_mode: str | None = None, **options: Any) -> None:
        self.game = Game.from_kwargs(env_name, **options)
        PROCGEN.require(env_id(env_name))
        super().__init__(env=self._make(None), render_mode=render_mode)
        self.metadata = dict(METADATA)  # shimmy has put gym's there
        self._painter = Painter(self.game)
        self._n_level_steps = 0
        # Whether the frame at hand begins an episode, and ``reset`` has not returned it yet.
        self._is_new = True

    @staticmethod
    def check_arguments(env_name: str, render_mode: str | None = None, **options: Any) -> None:
        """
        Check the options without building anything; the zoo does so before it creates a folder.

        :param env_name: the constructor's
        :param render_mode: the constructor's
        :param options: the constructor's
        :raises ValueError: that names the option, what was expected and what came
        """
        Game.from_kwargs(env_name, **options)

    def _make(self, seed: int | None) -> Any:
        load_procgen()
        from procgen.gym_registration import make_env

        return make_env(rand_seed=as_procgen_seed(seed), **self.game.procgen_options())

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict[str, Any]]:
        gymnasium.Env.reset(self, seed=seed)
        if seed is not None:
            self._call("close")
            self.gym_env = self._make(seed)
        elif not self._is_new:
            self.gym_env.env.act(np.array([RESET_ACTION]))
        self._is_new, self._n_level_steps = False, 0
        obs: np.ndarray = self.gym_env.reset()
        return obs, self.game.make_info(self._call("get_info")[0])

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        obs, reward, done, procgen_info = self.gym_env.step(action)
        info = self.game.make_info(procgen_info)
        is_complete, is_done = bool(info["prev_level_complete"]), bool(done)
        self._n_level_steps += 1
        is_timeout = is_done and not is_complete and self._n_level_steps >= self.game.timeout
        is_truncated = is_timeout and self.game.time_limit_truncates
        if is_done:
            info |= end_info(is_complete)
        if is_done or is_complete:
            self._n_level_steps = 0
        self._is_new = is_done
        return obs, float(reward), is_done and not is_truncated, is_truncated, info

    def render(self) -> np.ndarray | None:
        return None if self.render_mode is None else self._painter.paint(self._call("get_state")[0])

    def get_state(self) -> bytes:
        """
        :return: all that decides how the game goes on
        """
        counters = {"n_level_steps": self._n_level_steps, "is_new": self._is_new}
        return self.game.pack_state(self._call("get_state")[0], counters)

    def set_state(self, record: bytes) -> None:
        """
        Go on as another one of the same game and options would, bit for bit.

        :param record: what ``get_state`` returned
        """
        state, counters = self.game.unpack_state(record)
        self._call("set_state", [state])
        self._n_level_steps, self._is_new = counters["n_level_steps"], counters["is_new"]

    def _call(self, method: str, *args: Any) -> Any:
        return self.gym_env.env.callmethod(method, *args)

    def close(self) -> None:
        self._painter.close()
        self._call("close")
