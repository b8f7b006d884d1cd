"""Rollouts by actors: as many trajectories as there are actors."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize

from sb3_hrl.actors.pool import ActorPool
from sb3_hrl.actors.trajectory import Trajectory, join, learn_statistics
from sb3_hrl.rollout.replay import Timeouts, finish_rollout
from sb3_hrl.rollout.time_aware import TimeAwareRolloutBuffer


def collect_from_actors(
    model: OnPolicyAlgorithm, env: VecEnv, pool: ActorPool, callback: BaseCallback, buffer: TimeAwareRolloutBuffer
) -> bool:
    """
    What ``OnPolicyAlgorithm.collect_rollouts`` does, with trajectories of actors.

    If each actor has one slot, there is one of each, all with the newest weights: the rollout of an on-policy learner. With
    more slots they are those that were finished first, perhaps two of one actor, and they were collected while the learner
    learned: ``rollout/policy_lag`` says how many updates are between their weights and the newest ones.

    The statistics of a ``VecNormalize`` stay as they are until the end. Every step is replayed for the callbacks; infos are
    those of episodes that ended, all others are empty.

    :param model: whose policy, counters and logger
    :param env: the environments
    :param pool: the actors
    :param callback: sees every step
    :param buffer: is filled
    :return: False if a callback stopped the training
    """
    model.policy.set_training_mode(False)
    buffer.reset()
    callback.on_rollout_start()
    gathered = pool.gather()
    n_envs = env.num_envs // len(gathered)
    trajectories = [t._replace(envs=slice(i * n_envs, (i + 1) * n_envs)) for i, t in enumerate(gathered)]
    for trajectory in trajectories:
        _fill(buffer, trajectory)
    model._last_obs = _last_obs(trajectories, model._last_obs)
    dones = join(trajectories, "episode_starts")[1:]
    is_going_on = finish_rollout(
        model,
        env,
        callback,
        buffer,
        dones,
        _timeouts(trajectories),
        _steps(trajectories, *dones.shape),
        last_values=np.concatenate([trajectory.last_values for trajectory in trajectories]),
    )
    normalize = unwrap_vec_normalize(env)
    if normalize is not None:
        is_one_of_each = len({trajectory.actor for trajectory in gathered}) == len(gathered)
        for part in [gathered] if is_one_of_each else [[trajectory] for trajectory in gathered]:
            learn_statistics(normalize, part)
        normalize.old_obs, normalize.old_reward = _last_rows(trajectories, "raw_obs"), _last_rows(trajectories, "raw_rewards")
    times = pool.times()
    model.logger.record("rollout/policy_lag", float(np.mean([pool.version - trajectory.version for trajectory in gathered])))
    model.logger.record("time/learner_wait", times.learner_wait)
    model.logger.record("time/actor_wait", times.actor_wait)
    model.logger.record("time/bottleneck", times.bottleneck)
    model.logger.record("time/actor_restarts", pool.n_restarts)
    return is_going_on


def _fill(buffer: TimeAwareRolloutBuffer, trajectory: Trajectory) -> None:
    """Copy a trajectory to its place in the buffer."""
    for target, source in (
        *(_pairs(buffer.observations, trajectory.obs)),
        (buffer.actions, trajectory.actions),
        (buffer.rewards, trajectory.rewards),
        (buffer.values, trajectory.values),
        (buffer.log_probs, trajectory.log_probs),
        (buffer.episode_starts, trajectory.episode_starts),
        (buffer.n_held, trajectory.n_held),
    ):
        # Observations and episode starts have one row more; actions and observations may have another shape.
        part = target[:, trajectory.envs]
        part[:] = source[: len(target)].reshape(part.shape)


def _pairs(targets: Any, sources: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(targets[key], sources[key]) for key in targets] if isinstance(targets, dict) else [(targets, sources)]


def _last_obs(trajectories: Sequence[Trajectory], like: Any) -> Any:
    """The observations after the rollout, of the type in which the environments give them."""
    obs = _last_rows(trajectories, "obs")
    if isinstance(obs, dict):
        return {key: part.astype(like[key].dtype) for key, part in obs.items()}
    return obs.astype(like.dtype)


def _last_rows(trajectories: Sequence[Trajectory], name: str) -> Any:
    rows = [getattr(trajectory, name) for trajectory in trajectories]
    if isinstance(rows[0], dict):
        return {key: np.concatenate([row[key][-1] for row in rows]) for key in rows[0]}
    return np.concatenate([row[-1] for row in rows])


def _timeouts(trajectories: Sequence[Trajectory]) -> Timeouts:
    where = [np.nonzero(trajectory.timeouts) for trajectory in trajectories]
    steps = np.concatenate([step for step, _ in where])
    envs = np.concatenate([index + t.envs.start for (_, index), t in zip(where, trajectories, strict=True)])
    terminal_obs: Any = [trajectory.terminal_obs for trajectory in trajectories]
    if isinstance(terminal_obs[0], dict):
        return Timeouts(steps, envs, {key: np.concatenate([part[key] for part in terminal_obs]) for key in terminal_obs[0]})
    return Timeouts(steps, envs, np.concatenate(terminal_obs))


def _steps(trajectories: Sequence[Trajectory], n_steps: int, n_envs: int) -> Iterator[tuple[list[dict[str, Any]], list[int]]]:
    """For each step the infos, and the environments whose episode ended."""
    ended: list[dict[int, dict[str, Any]]] = [{} for _ in range(n_steps)]
    for trajectory in trajectories:
        for step, index, info in trajectory.infos:
            ended[step][trajectory.envs.start + index] = info
    for infos in ended:
        yield [infos.get(index, {}) for index in range(n_envs)], sorted(infos)
