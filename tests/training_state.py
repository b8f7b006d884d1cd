"""All that training changes, for tests that compare two ways to train."""

from typing import Any

import numpy as np

ARRAYS = ("observations", "actions", "log_probs", "rewards", "episode_starts", "values", "n_held", "advantages", "returns")


def training_state(model: Any) -> dict[str, np.ndarray]:
    """
    :param model: an HPPO
    :return: all that training has changed
    """
    state: dict[str, Any] = {f"buffer.{name}": getattr(model.rollout_buffer, name) for name in ARRAYS}
    state |= {f"policy.{name}": tensor.numpy() for name, tensor in model.policy.state_dict().items()}
    state |= {"last_obs": model._last_obs, "last_starts": model._last_episode_starts}
    state["counts"] = np.array([model.num_timesteps, model.n_simulated_steps, model.hold_decisions or 0])
    state["episodes"] = np.array([(episode["r"], episode["l"]) for episode in model.ep_info_buffer])
    if getattr(model, "muscle_level", None) is not None:
        state["muscle.samples"] = model.muscle_level.buffer.samples
        layers = [layer for level in model.muscle_level.muscles.levels for layer in level]
        state |= {f"muscle.{i}": array for i, array in enumerate(array for layer in layers for array in layer)}
    normalize = model.get_vec_normalize_env()
    if normalize is not None:
        statistics = {"ret_rms": normalize.ret_rms} | ({"obs_rms": normalize.obs_rms} if normalize.norm_obs else {})
        for name, rms in _flat(statistics).items():
            state[name] = np.array([*np.atleast_1d(rms.mean), *np.atleast_1d(rms.var), rms.count])
        state |= {"returns": normalize.returns, "old_obs": normalize.old_obs, "old_reward": normalize.old_reward}
    return _flat(state)


def _flat(tree: dict[str, Any]) -> dict[str, Any]:
    """Without the dictionaries that observations of a Dict space are in."""
    flat = {name: value for name, value in tree.items() if not isinstance(value, dict)}
    for name in tree.keys() - flat.keys():
        flat |= {f"{name}.{key}": value for key, value in tree[name].items()}
    return flat


def differences(first: Any, second: Any) -> list[str]:
    """
    :param first: a model
    :param second: another one
    :return: what is not equal to the last bit
    """
    left, right = training_state(first), training_state(second)
    assert left.keys() == right.keys()
    is_equal = {name: np.array_equal(left[name], right[name]) and left[name].dtype == right[name].dtype for name in left}
    return [name for name in left if not is_equal[name]]
