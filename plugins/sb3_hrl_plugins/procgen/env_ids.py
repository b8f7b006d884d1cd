"""The ids of Procgen's games. Importing this registers them with gymnasium, and imports neither gym nor procgen."""

import gymnasium as gym

from sb3_hrl.extras import Extra, declare

PROCGEN = Extra("sb3-hrl[procgen]", "procgen", "procgen", "Procgen's games")
GAMES = (
    "bigfish",
    "bossfight",
    "caveflyer",
    "chaser",
    "climber",
    "coinrun",
    "dodgeball",
    "fruitbot",
    "heist",
    "jumper",
    "leaper",
    "maze",
    "miner",
    "ninja",
    "plunder",
    "starpilot",
)


def env_id(game: str) -> str:
    """
    :param game: one of ``GAMES``
    :return: its id in gymnasium's registry
    """
    return f"procgen-{game}-v0"


for _game in GAMES:
    # No max_episode_steps: the games have time limits of their own, and begin the next level by themselves.
    gym.register(env_id(_game), "sb3_hrl_plugins.procgen.env:ProcgenEnv", kwargs={"env_name": _game})
    declare(env_id(_game), PROCGEN)
