"""VecEnvs of our own, and what YAML's ``vec_env_wrapper`` reaches them by."""

from sb3_hrl.vec_env.native import native

__all__ = ["native"]
