"""``vec_env_wrapper: native``: the native form of a VecEnv, where there is one."""

import warnings

from stable_baselines3.common.vec_env import VecEnv


def native(venv: VecEnv) -> VecEnv:
    """
    Swap a VecEnv for its native form. No environment has one yet, so this says so and changes nothing.

    :param venv: the VecEnv that the zoo built
    :return: the VecEnv to use
    """
    warnings.warn(f"vec_env_wrapper 'native': there is no native form of this {type(venv).__name__}; it is used as it is")
    return venv
