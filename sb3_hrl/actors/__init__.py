"""Processes that collect experience for a learner."""

from sb3_hrl.actors.pool import ActorPool, PoolTimes
from sb3_hrl.actors.trajectory import Trajectory, learn_statistics
from sb3_hrl.actors.vec_env import ActorVecEnv, actor_env, check_actors, check_shares, make_actor_env

__all__ = [
    "ActorPool",
    "ActorVecEnv",
    "PoolTimes",
    "Trajectory",
    "actor_env",
    "check_actors",
    "check_shares",
    "learn_statistics",
    "make_actor_env",
]
