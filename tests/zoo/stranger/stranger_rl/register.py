"""Registers strings, imports nothing heavy."""

import gymnasium

gymnasium.register("StrangerCart-v0", "gymnasium.envs.classic_control.cartpole:CartPoleEnv", max_episode_steps=50)
