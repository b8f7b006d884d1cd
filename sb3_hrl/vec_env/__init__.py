"""VecEnvs of our own, and what YAML's ``vec_env_wrapper`` reaches them by."""

from sb3_hrl.vec_env.native import native
from sb3_hrl.vec_env.native_vec_env import NativeVecEnv

__all__ = ["NativeVecEnv", "native"]
