"""
One game of Procgen: its options, checked before Procgen's C++ core, which ends the process on a wrong one; its time limit; its
infos; and its saved states.
"""

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from sb3_hrl.registry import suggest
from sb3_hrl_plugins.procgen.env_ids import GAMES, PROCGEN, env_id

# Which games have a mode. Where there are only "easy" and "hard", Procgen ends the process on the others.
MODES: Mapping[str, tuple[str, ...]] = {
    "easy": GAMES,
    "hard": GAMES,
    "extreme": ("chaser", "dodgeball", "leaper", "starpilot"),
    "memory": ("caveflyer", "dodgeball", "heist", "jumper", "maze", "miner"),
    "exploration": ("caveflyer", "climber", "coinrun", "heist", "jumper", "leaper", "maze", "ninja"),
}
_DEFAULT_TIMEOUT = 1000
_TIMEOUTS = {"bigfish": 6000, "bossfight": 4000, "plunder": 4000, "leaper": 500, "maze": 500}
# What every step's info has.
INFO_KEYS = ("level_seed", "prev_level_seed", "prev_level_complete")
# Gymnasium shows the pictures in a window where "human" is asked for.
METADATA: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 15, "preload": ["sb3_hrl_plugins.procgen.assets"]}
# Any other action than the fifteen makes Procgen begin the next level.
RESET_ACTION = -1
_MAGIC = b"sb3-hrl procgen 1\n"
_MAX_SEED = 2**31 - 1


@dataclass(frozen=True)
class Game:
    """
    A game with its options; the names and defaults are Procgen's, but for the last one, which is ours.

    :param env_name: one of ``GAMES``
    :param num_levels: how many different levels there are; 0 for all
    :param start_level: the first of them; with ``num_levels`` only
    :param distribution_mode: ``easy``, ``hard``, or what else the game has (``MODES``)
    :param use_sequential_levels: a level that is completed is followed by the next one, in the same episode
    :param center_agent: show the agent in the middle, where the game has the choice
    :param use_backgrounds: draw backgrounds
    :param use_monochrome_assets: draw plain rectangles
    :param restrict_themes: one theme only
    :param use_generated_assets: draw randomly generated textures
    :param paint_vel_info: paint the agent's velocity into the picture, where the game has it
    :param time_limit_truncates: an episode that its time limit ends is truncated; False lets it count as ended, as if the
        agent had died
    """

    env_name: str
    num_levels: int | None = None
    start_level: int | None = None
    distribution_mode: str = "hard"
    use_sequential_levels: bool = False
    center_agent: bool = True
    use_backgrounds: bool = True
    use_monochrome_assets: bool = False
    restrict_themes: bool = False
    use_generated_assets: bool = False
    paint_vel_info: bool = False
    time_limit_truncates: bool = True

    @classmethod
    def from_kwargs(cls, env_name: str, **options: Any) -> "Game":
        """
        :param env_name: one of ``GAMES``
        :param options: the others
        :return: the game
        :raises ValueError: that names the option, what was expected and what came
        """
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                raise ValueError(f"Procgen: there is no option {name!r}{suggest(name, known)}")
        return cls(env_name, **options)

    def __post_init__(self) -> None:
        if self.env_name not in GAMES:
            raise ValueError(f"Procgen: there is no game {self.env_name!r}{suggest(self.env_name, GAMES)}")
        where, mode = env_id(self.env_name), self.distribution_mode
        modes = [name for name, games in MODES.items() if self.env_name in games]
        if mode not in modes:
            raise ValueError(f"{where}: distribution_mode: expected {' or '.join(map(repr, modes))}, got {mode!r}")
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is bool and not isinstance(value, bool):
                raise ValueError(f"{where}: {field.name}: expected true or false, got {value!r}")
        for name in ("num_levels", "start_level"):
            value = getattr(self, name)
            if value is not None and mode == "exploration":
                raise ValueError(f"{where}: {name}: 'exploration' has one level of its own, got {value!r}")
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_SEED):
                raise ValueError(f"{where}: {name}: expected a whole number from 0 to {_MAX_SEED}, got {value!r}")
        if self.start_level and not self.num_levels:
            raise ValueError(
                f"{where}: start_level: {self.start_level} would have no effect, since num_levels is 0, which means all levels"
            )
        if (self.start_level or 0) + (self.num_levels or 0) > _MAX_SEED:
            raise ValueError(f"{where}: start_level + num_levels: expected at most {_MAX_SEED}")

    @property
    def timeout(self) -> int:
        """
        After how many steps on a level the episode ends. Procgen does not say that time was the reason: an episode that ends
        at this very step, with its level not completed, has met its limit.
        """
        if (self.env_name, self.distribution_mode) == ("jumper", "memory"):
            return 2000
        return _TIMEOUTS.get(self.env_name, _DEFAULT_TIMEOUT)

    def procgen_options(self) -> dict[str, Any]:
        """
        :return: the arguments of Procgen's own constructors
        """
        return {name: value for name, value in self._played_options.items() if value is not None}

    def make_batch(self, n_envs: int, seed: int | None, n_threads: int = 0, render_mode: str | None = None) -> Any:
        """
        :param n_envs: number of environments
        :param seed: of their levels and of what happens in them; None for one from the system
        :param n_threads: worker threads of the batch; 0 for none beside the caller's
        :param render_mode: ``rgb_array`` for large pictures in the infos, at every step
        :return: a ``ProcgenGym3Env``
        """
        return load_procgen().ProcgenGym3Env(
            num=n_envs,
            rand_seed=as_procgen_seed(seed),
            num_threads=n_threads,
            render_mode=render_mode,
            **self.procgen_options(),
        )

    def make_info(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """
        :param info: Procgen's own of one environment
        :return: the same as Python's numbers
        """
        return {key: int(info[key]) for key in INFO_KEYS}

    def pack_state(self, state: bytes, counters: Mapping[str, Any]) -> bytes:
        """
        :param state: Procgen's own
        :param counters: what else decides how the environment goes on
        :return: both, with the game's name and options and a checksum
        """
        body = json.dumps([self._fingerprint, dict(counters)]).encode() + b"\n" + state
        return _MAGIC + hashlib.sha256(body).digest() + body

    def unpack_state(self, record: bytes) -> tuple[bytes, dict[str, Any]]:
        """
        Check a saved state: Procgen ends the process on a damaged one.

        :param record: what ``pack_state`` returned
        :return: Procgen's own state, and the counters
        :raises ValueError: if it is damaged, or of another game, other options or another Procgen
        """
        where = env_id(self.env_name)
        digest, body = record[len(_MAGIC) : len(_MAGIC) + 32], record[len(_MAGIC) + 32 :]
        if not record.startswith(_MAGIC) or hashlib.sha256(body).digest() != digest:
            raise ValueError(f"{where}: the saved state is damaged: its checksum is not that of its {len(record)} bytes")
        header, _, state = body.partition(b"\n")
        fingerprint, counters = json.loads(header)
        for key, expected in self._fingerprint.items():
            if fingerprint.get(key) != expected:
                raise ValueError(
                    f"{where}: the saved state is of another game: {key}: expected {expected!r}, got {fingerprint.get(key)!r}"
                )
        return state, counters

    @cached_property
    def _fingerprint(self) -> dict[str, Any]:
        return {**self._played_options, "procgen": load_procgen().__version__.strip()}

    @property
    def _played_options(self) -> dict[str, Any]:
        """Those that decide what is played."""
        return {name: value for name, value in asdict(self).items() if name != "time_limit_truncates"}


def end_info(is_complete: bool) -> dict[str, Any]:
    """
    :param is_complete: whether the level was completed
    :return: what the info of an episode's last step has besides. Procgen draws the next level before it says that the episode
        is over, so that its last frame cannot be had: the one before stands in for it
    """
    return {"is_success": is_complete, "terminal_observation_is_stale": True}


class Painter:
    """
    Large pictures of a game, made when they are asked for: drawn at every step they would cost more than the game.

    :param game: which one
    """

    def __init__(self, game: Game) -> None:
        self._game = game
        self._batch: Any = None

    def paint(self, state: bytes) -> np.ndarray:
        """
        :param state: Procgen's own
        :return: the picture [512, 512, 3], uint8
        """
        if self._batch is None:
            self._batch = self._game.make_batch(1, 0, render_mode="rgb_array")
        self._batch.observe()
        self._batch.set_state([state])
        return self._batch.get_info()[0]["rgb"]

    def close(self) -> None:
        """Give the renderer back."""
        if self._batch is not None:
            self._batch.close()
            self._batch = None


def as_procgen_seed(seed: int | None) -> int | None:
    """
    :param seed: any seed of gymnasium's
    :return: one that Procgen takes
    """
    return None if seed is None else int(seed) % 2**31


def load_procgen() -> Any:
    """
    :return: the module ``procgen``, which imports gym
    :raises MissingExtraError: if it is not installed
    """
    PROCGEN.require("Procgen")
    with warnings.catch_warnings():
        # Of a file that procgen leaves open, and of what gym uses of others.
        warnings.simplefilter("ignore")
        import procgen
    return procgen
