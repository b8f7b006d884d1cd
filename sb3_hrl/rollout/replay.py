"""
The end of a rollout that was collected as a whole, natively or by actors: what SB3's ``collect_rollouts`` does step by step is
done here afterwards.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import obs_as_tensor
from stable_baselines3.common.vec_env import VecEnv

from sb3_hrl.rollout.time_aware import TimeAwareRolloutBuffer


class Timeouts(NamedTuple):
    """
    The steps in which a time limit ended an episode.

    :param step: when [K]
    :param env_index: where [K]
    :param terminal_obs: the last observations, as the policy sees them [K, ...]; for Dict spaces a dict of such
    """

    step: np.ndarray
    env_index: np.ndarray
    terminal_obs: Any


def finish_rollout(
    model: OnPolicyAlgorithm,
    env: VecEnv,
    callback: BaseCallback,
    buffer: TimeAwareRolloutBuffer,
    dones: np.ndarray,
    timeouts: Timeouts,
    steps: Iterable[tuple[Sequence[dict[str, Any]], list[int]]],
    last_values: np.ndarray | None = None,
) -> bool:
    """
    Show every step to the callbacks, bootstrap what time limits cut, compute advantages.

    :param model: whose policy, counters and logger; its ``_last_obs`` follows the rollout already
    :param env: the environments
    :param callback: sees every step
    :param buffer: has observations, actions, rewards, values, log-probabilities, episode starts and ``n_held``
    :param dones: whether an episode ended [T, E]
    :param timeouts: what to bootstrap
    :param steps: for each step the infos, and the environments whose episode ended
    :param last_values: values of the observations after the rollout [E]; None if nobody has computed them
    :return: False if a callback stopped the training
    """
    model._last_episode_starts = dones[-1]
    if last_values is None:
        last_values = predict_values(model, model._last_obs)
    if not _replay(model, env, callback, buffer, dones, steps):
        return False
    _bootstrap(model, buffer, timeouts)
    buffer.pos, buffer.full = len(dones), True
    buffer.compute_returns_and_advantage(last_values=th.as_tensor(last_values), dones=dones[-1])
    callback.update_locals({"values": last_values})
    callback.on_rollout_end()
    return True


def predict_values(model: OnPolicyAlgorithm, obs: Any) -> np.ndarray:
    """
    :param model: whose policy
    :param obs: observations [N, ...]
    :return: their values [N], float32
    """
    with th.no_grad():
        values = model.policy.predict_values(obs_as_tensor(obs, model.device))
    return values.flatten().cpu().numpy()


def _bootstrap(model: OnPolicyAlgorithm, buffer: TimeAwareRolloutBuffer, timeouts: Timeouts) -> None:
    """
    Add ``gamma**n_held * V(terminal_obs)`` to the rewards of the decisions that a time limit cut. It is rounded as in
    lock-step: by SB3 in float32, and after a hold by ``TimeAwareCallback`` in float64.
    """
    if not len(timeouts.step):
        return
    where = timeouts.step, timeouts.env_index
    values, n_held = predict_values(model, timeouts.terminal_obs), buffer.n_held[where]
    after_hold = (np.float64(model.gamma) ** n_held * values).astype(np.float32)
    buffer.rewards[where] += np.where(n_held == 1, np.float32(model.gamma) * values, after_hold)


def read_actions(model: OnPolicyAlgorithm, buffer: TimeAwareRolloutBuffer) -> tuple[np.ndarray, np.ndarray]:
    """
    :param model: whose policy
    :param buffer: a finished rollout
    :return: its actions as the policy gave them, and as the environments took them [T, E, ...]
    """
    space = model.action_space
    if not isinstance(space, spaces.Box):
        actions = buffer.actions.reshape(*buffer.rewards.shape, *space.shape)  # type: ignore[misc]
        return actions, actions
    if model.policy.squash_output:
        return buffer.actions, model.policy.unscale_action(buffer.actions)
    return buffer.actions, np.clip(buffer.actions, space.low, space.high)


def _replay(
    model: OnPolicyAlgorithm,
    env: VecEnv,
    callback: BaseCallback,
    buffer: TimeAwareRolloutBuffer,
    dones: np.ndarray,
    steps: Iterable[tuple[Sequence[dict[str, Any]], list[int]]],
) -> bool:
    """Show every step to the callbacks, as SB3's ``collect_rollouts`` would have. False if one of them stops the training."""
    actions, clipped_actions = read_actions(model, buffer)
    callback.update_locals(
        {
            "self": model,
            "env": env,
            "callback": callback,
            "rollout_buffer": buffer,
            "n_rollout_steps": len(dones),
        }
    )
    for step, (infos, ended) in enumerate(steps):
        model.num_timesteps += env.num_envs
        callback.update_locals(
            {
                "n_steps": step,
                "actions": actions[step],
                "clipped_actions": clipped_actions[step],
                "values": buffer.values[step],
                "log_probs": buffer.log_probs[step],
                "new_obs": model._last_obs if step == len(dones) - 1 else _read_obs(buffer, step + 1, model._last_obs),
                "rewards": buffer.rewards[step],
                "dones": dones[step],
                "infos": infos,
                "n_held": buffer.n_held[step],
            }
        )
        if not callback.on_step():
            return False
        if ended:
            model._update_info_buffer([infos[index] for index in ended], dones[step, ended])
    return True


def _read_obs(buffer: TimeAwareRolloutBuffer, step: int, like: Any) -> Any:
    """Observations of a step in the shape and type in which the environments give them."""
    if isinstance(like, dict):
        observations: Any = buffer.observations
        return {key: observations[key][step].reshape(part.shape).astype(part.dtype) for key, part in like.items()}
    return buffer.observations[step].reshape(like.shape).astype(like.dtype)
