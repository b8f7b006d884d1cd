"""``vec_env_wrapper: native``: the native form of a VecEnv, where there is one."""

import warnings

from stable_baselines3.common.vec_env import VecEnv

from sb3_hrl.envs.task import NoNativeForm
from sb3_hrl.vec_env.native_vec_env import NativeVecEnv
from sb3_hrl.vec_env.recipe import read_recipe


def native(venv: VecEnv) -> VecEnv:
    """
    Swap a VecEnv that the zoo or ``make_vec_env`` built for its native form, with its seeds, monitor files and hold.

    :param venv: a Dummy or Subproc VecEnv; it is closed
    :return: a ``NativeVecEnv``; or the VecEnv itself, after a warning that says why there is no native form
    """
    try:
        recipe = read_recipe(venv)
    except NoNativeForm as reason:
        warnings.warn(f"vec_env_wrapper 'native': {reason}; the {type(venv).__name__} is used as it is")
        return venv
    # First the old one: both have the same monitor files.
    venv.close()
    env = NativeVecEnv(**recipe._asdict())
    env._seeds, env._options = venv._seeds, venv._options
    return env
