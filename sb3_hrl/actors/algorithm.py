"""The learner's side of actor processes, for our on-policy algorithms."""

from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch as th
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, unwrap_vec_normalize

from sb3_hrl.actors.pool import ActorPool
from sb3_hrl.actors.trajectory import Trajectory, learn_statistics
from sb3_hrl.rollout.algorithm import TimeAwareAlgorithm
from sb3_hrl.rollout.native_rollout import bootstrap_timeouts, replay
from sb3_hrl.rollout.time_aware import TimeAwareRolloutBuffer

SelfActorAlgorithm = TypeVar("SelfActorAlgorithm", bound="ActorAlgorithm")


class ActorAlgorithm(TimeAwareAlgorithm):
    """
    An algorithm whose rollouts may come from actor processes: ``n_actors`` trajectories make a rollout.

    It has no constructor; the algorithm's own sets ``n_actors`` and ``actor_kwargs``, and makes its environments by
    ``make_actor_env``. The processes live as long as ``learn``.
    """

    # None or 0 for none: then it is what it was without this class.
    n_actors: int | None = None
    # Further arguments of ``ActorPool``: ``timeout``, ``max_restarts``.
    actor_kwargs: dict[str, Any] | None = None
    # Places for trajectories of each actor. With one they wait until the learner has learned from the last one, and start the
    # next with its weights; with two they collect meanwhile, with older ones.
    n_slots: int = 1
    pool: ActorPool | None = None
    _unreleased: list[Trajectory] | None = None

    def _can_run_natively(self, env: VecEnv) -> bool:
        if self.n_actors and self.rollout == "native":
            raise ValueError(f"{type(self).__name__}: rollout: 'native' is not possible with n_actors: expected 'auto'")
        return not self.n_actors and super()._can_run_natively(env)

    def _configure_hold(self, gamma: float) -> None:
        # The actors' environments are told by the pool.
        if not self.n_actors:
            super()._configure_hold(gamma)

    def learn(self: SelfActorAlgorithm, *args: Any, **kwargs: Any) -> SelfActorAlgorithm:
        try:
            return super().learn(*args, **kwargs)
        finally:
            if self.pool is not None:
                self.pool.close()
            self.pool, self._unreleased = None, None

    def _setup_learn(self, *args: Any, **kwargs: Any) -> tuple[int, BaseCallback]:
        if self.n_actors:
            assert self.env is not None
            self._meet_hold(self.env)
            # Their environments begin anew, and the first observations come from there.
            self._last_obs = None
            self._unreleased = []
            self.pool = ActorPool(
                self.env,
                self.policy,
                self.n_actors,
                self.n_steps,
                noise_seed=int(th.randint(2**62, ()).item()),
                n_slots=self.n_slots,
                use_sde=self.use_sde,
                sde_sample_freq=self.sde_sample_freq,
                hold=lambda: None if self.hold_decisions is None else (self.gamma, self.hold_decisions),
                **(self.actor_kwargs or {}),
            )
            self.pool.start()
        return super()._setup_learn(*args, **kwargs)

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        if self.pool is None:
            return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)
        assert isinstance(rollout_buffer, TimeAwareRolloutBuffer)
        self.policy.set_training_mode(False)
        rollout_buffer.reset()
        callback.on_rollout_start()
        gathered = self._gather(self.pool, env, rollout_buffer)
        # Callbacks see every step afterwards, as after a native rollout.
        dones = np.concatenate((rollout_buffer.episode_starts[1:], gathered.dones[None])).astype(bool)
        steps = [([ended.get(index, {}) for index in range(env.num_envs)], list(ended)) for ended in gathered.infos]
        if not replay(self, env, callback, rollout_buffer, dones, steps):
            return False
        for where, terminal_obs in gathered.timeouts:
            bootstrap_timeouts(self, rollout_buffer, where, terminal_obs)
        rollout_buffer.pos, rollout_buffer.full = n_rollout_steps, True
        rollout_buffer.compute_returns_and_advantage(th.as_tensor(gathered.last_values), gathered.dones)
        callback.update_locals({"values": gathered.last_values})
        callback.on_rollout_end()
        return True

    def _gather(self, pool: ActorPool, env: VecEnv, buffer: TimeAwareRolloutBuffer) -> "_Gathered":
        """
        Fill the buffer, ``_last_obs`` and ``_last_episode_starts`` from the next ``n_actors`` trajectories.

        :return: what the buffer has no place for
        """
        assert self.n_actors is not None
        assert self._unreleased is not None
        pool.publish()
        while self._unreleased:
            pool.release(self._unreleased.pop(0))
        n_envs = env.num_envs // self.n_actors
        normalize = unwrap_vec_normalize(env)
        empty = np.empty(env.num_envs, np.float32), np.empty(env.num_envs, dtype=bool)
        gathered = _Gathered([{} for _ in range(self.n_steps)], [], *empty)
        lags = []
        for part in range(self.n_actors):
            trajectory = pool.get()
            lags.append(pool.version - trajectory.version)
            # With more than one place, an actor may have given two before another one has given any.
            columns = trajectory.envs if self.n_slots == 1 else slice(part * n_envs, (part + 1) * n_envs)
            self._last_obs = _copy_obs(buffer.observations, self._last_obs, columns, trajectory.obs)
            _copy(buffer, columns, trajectory)
            gathered.add(columns, trajectory)
            if normalize is not None:
                learn_statistics(normalize, trajectory)
            if self.n_slots == 1:
                self._unreleased.append(trajectory)
            else:
                pool.release(trajectory)
        self._last_episode_starts = gathered.dones
        times = pool.times()
        self.logger.record("rollout/policy_lag", float(np.mean(lags)))
        self.logger.record("time/learner_wait", times.learner_wait)
        self.logger.record("time/actor_wait", times.actor_wait)
        self.logger.record("time/bottleneck", times.bottleneck)
        self.logger.record("time/actor_restarts", pool.n_restarts)
        return gathered

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "pool", "_unreleased"]


class _Gathered(NamedTuple):
    """
    What came with the trajectories of a rollout.

    :param infos: for each step the infos of the environments whose episode ended, by their column in the buffer
    :param timeouts: step and column [K], and last observations [K, ...], of what a time limit has cut
    :param last_values: of the observations after the last step [n_envs]
    :param dones: whether an episode ended with the last step [n_envs]
    """

    infos: list[dict[int, dict[str, Any]]]
    timeouts: list[tuple[tuple[np.ndarray, np.ndarray], Any]]
    last_values: np.ndarray
    dones: np.ndarray

    def add(self, columns: slice, trajectory: Trajectory) -> None:
        """
        :param columns: where it is in the buffer
        :param trajectory: the next one
        """
        for step, index, info in trajectory.infos:
            self.infos[step][columns.start + index] = info
        steps, indices = np.nonzero(trajectory.timeouts)
        self.timeouts.append(((steps, columns.start + indices), trajectory.terminal_obs))
        self.last_values[columns] = trajectory.last_values
        self.dones[columns] = trajectory.dones[-1]


def _copy(buffer: TimeAwareRolloutBuffer, columns: slice, trajectory: Trajectory) -> None:
    """Copy a trajectory, all but its observations, into columns of the buffer."""
    buffer.actions[:, columns] = trajectory.actions.reshape(*trajectory.rewards.shape, -1)
    buffer.episode_starts[:, columns] = trajectory.episode_starts[:-1]
    for name in ("rewards", "values", "log_probs", "n_held"):
        getattr(buffer, name)[:, columns] = getattr(trajectory, name)


def _copy_obs(observations: Any, last_obs: Any, columns: slice, obs: Any) -> Any:
    """
    :param observations: of the buffer [T, n_envs, ...]; are written to
    :param last_obs: after the rollout [n_envs, ...]
    :param columns: which environments
    :param obs: of a trajectory [T + 1, E, ...]
    :return: ``last_obs`` with those of the trajectory
    """
    if isinstance(observations, dict):
        return {key: _copy_obs(array, last_obs[key], columns, obs[key]) for key, array in observations.items()}
    target = observations[:, columns]
    target[:] = obs[:-1].reshape(target.shape)
    last_obs = last_obs.copy()
    last_obs[columns] = obs[-1]
    return last_obs
