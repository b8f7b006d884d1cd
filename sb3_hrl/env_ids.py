"""The ids of the bodies with muscles. Importing this registers them with gymnasium, and builds nothing."""

from typing import Any

import gymnasium as gym

_ENTRY_POINT = "sb3_hrl.envs.muscle_env:MuscleEnv"
# Id -> its task's file, and its time limit.
MUSCLE_ENVS: dict[str, tuple[str, int | None]] = {
    "MuscleArmReach-v0": ("muscle_arm_reach.yaml", 150),
    "MuscleWalkerStand-v0": ("muscle_walker_stand.yaml", 1000),
    "MuscleWalkerWalk-v0": ("muscle_walker_walk.yaml", 1000),
    "MuscleWalkerSpeed-v0": ("muscle_walker_speed.yaml", 1000),
    # Anybody's own: `env_file` is a YAML file, or a model of MuJoCo. The file has the time limit.
    "MuscleEnv-v0": ("muscle_env.yaml", None),
}

for _env_id, (_file, _max_episode_steps) in MUSCLE_ENVS.items():
    _kwargs: dict[str, Any] = {"env_file": _file}
    gym.register(_env_id, entry_point=_ENTRY_POINT, max_episode_steps=_max_episode_steps, kwargs=_kwargs)
