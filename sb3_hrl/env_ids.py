"""The ids of the bodies with muscles. Importing this registers them with gymnasium, and builds nothing."""

from typing import Any

import gymnasium as gym

from sb3_hrl import extras

_ENTRY_POINT = "sb3_hrl.envs.muscle_env:MuscleEnv"
# Id -> its task's file, and its time limit.
MUSCLE_ENVS: dict[str, tuple[str, int | None]] = {
    "MuscleArmReach-v0": ("muscle_arm_reach.yaml", 150),
    "MuscleWalkerStand-v0": ("muscle_walker_stand.yaml", 1000),
    "MuscleWalkerWalk-v0": ("muscle_walker_walk.yaml", 1000),
    "MuscleWalkerSpeed-v0": ("muscle_walker_speed.yaml", 1000),
    "MyoElbowPose-v0": ("myo_elbow_pose.yaml", 100),  # the extra [myo]; only making it looks for that
    # Anybody's own: `env_file` is a YAML file, or a model of MuJoCo. The file has the time limit.
    "MuscleEnv-v0": ("muscle_env.yaml", None),
}
# MyoSim's elbow has no camera of its own: from the right, a little in front, at the arm.
_CAMERAS: dict[str, dict[str, Any]] = {
    "MyoElbowPose-v0": {"lookat": [-0.17, -0.05, 1.1], "distance": 1.2, "azimuth": 20.0, "elevation": -10.0},
}
extras.declare("MyoElbowPose-v0", extras.MYO)

for _env_id, (_file, _max_episode_steps) in MUSCLE_ENVS.items():
    _kwargs: dict[str, Any] = {"env_file": _file}
    if _env_id in _CAMERAS:
        _kwargs["default_camera_config"] = _CAMERAS[_env_id]
    gym.register(_env_id, entry_point=_ENTRY_POINT, max_episode_steps=_max_episode_steps, kwargs=_kwargs)
