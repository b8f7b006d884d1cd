"""The learner's side of actor processes, for our on-policy algorithms."""

from typing import Any, TypeVar

import torch as th
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.vec_env import VecEnv

from sb3_hrl.actors.pool import ActorPool
from sb3_hrl.actors.rollout import collect_from_actors
from sb3_hrl.actors.vec_env import actor_env, check_actors, make_actor_env
from sb3_hrl.cnn import ImpalaCnn, NatureCnn
from sb3_hrl.rollout.algorithm import TimeAwareAlgorithm
from sb3_hrl.rollout.time_aware import TimeAwareRolloutBuffer
from sb3_hrl.threads import available_threads

SelfActorAlgorithm = TypeVar("SelfActorAlgorithm", bound="ActorAlgorithm")


class ActorAlgorithm(TimeAwareAlgorithm):
    """
    A time-aware algorithm whose rollouts may come from actor processes, which live as long as ``learn``.

    It has no constructor; the algorithm's own sets ``n_actors``, ``actor_timeout`` and ``max_restarts``, which HPPO describes,
    and makes its environments by ``make_actor_env``.
    """

    n_actors: int | None = None
    actor_timeout: float = 30.0
    max_restarts: int = 100
    # Places for trajectories of each actor. With one, all wait until the learner has learned from the last ones, and start the
    # next with its weights; with two they collect the next ones meanwhile.
    n_slots: int = 1
    # Threads of torch's that somebody wants, while the learner has fewer.
    n_threads_wanted: int | None = None

    @property
    def _pool(self) -> ActorPool | None:
        """The actors, as long as they live."""
        env = actor_env(self.env)
        return None if env is None else env.pool

    def _can_run_natively(self, env: VecEnv) -> bool:
        try:
            check_actors(self.n_actors, rollout=self.rollout)
        except ValueError as error:
            raise ValueError(f"{type(self).__name__}: {error}") from error
        return not self.n_actors and super()._can_run_natively(env)

    def _configure_hold(self, gamma: float) -> None:
        if not self.n_actors:  # the pool tells the actors
            super()._configure_hold(gamma)

    def learn(self: SelfActorAlgorithm, *args: Any, **kwargs: Any) -> SelfActorAlgorithm:
        n_threads = th.get_num_threads()
        extractors = [module for module in self.policy.modules() if isinstance(module, NatureCnn | ImpalaCnn)]
        n_portions = [extractor.n_threads for extractor in extractors]
        n_left = n_threads
        if extractors and self.device.type == "cpu":
            n_left = 1  # portions of images have the threads
        elif self.n_actors and self.n_slots > 1:
            # Actors that collect meanwhile need cores, too: threads that wait for each other on too few are far slower.
            n_left = max(1, min(n_threads, available_threads() - self.n_actors))
        if n_left < n_threads:
            self.n_threads_wanted = n_threads
            th.set_num_threads(n_left)
            for extractor in extractors:
                extractor.n_threads = extractor.n_threads or n_threads
        try:
            return super().learn(*args, **kwargs)
        finally:
            for extractor, n in zip(extractors, n_portions, strict=True):
                extractor.n_threads = n
            th.set_num_threads(n_threads)
            self.n_threads_wanted = None
            if self._pool is not None:
                self._pool.close()

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "n_threads_wanted"]

    def _setup_learn(
        self,
        total_timesteps: int,
        callback: MaybeCallback = None,
        reset_num_timesteps: bool = True,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[int, BaseCallback]:
        if self.n_actors:
            self._start_actors(self.n_actors, goes_on=not reset_num_timesteps)
        return super()._setup_learn(total_timesteps, callback, reset_num_timesteps, *args, **kwargs)

    def _start_actors(self, n_actors: int, goes_on: bool) -> None:
        """
        Start the processes that collect.

        :param n_actors: how many
        :param goes_on: whether they go on where the last ones were, if that is known; else with new episodes
        """
        self.env = make_actor_env(self.env, n_actors)
        venv = actor_env(self.env)
        assert self.env is not None
        assert venv is not None
        assert isinstance(self.policy, ActorCriticPolicy)
        self._meet_hold(self.env)
        states = venv.actor_states
        goes_on = goes_on and self._last_obs is not None and len(states) == n_actors and None not in states
        if not goes_on:
            self._last_obs = None
        ActorPool(
            self.env,
            self.policy,
            n_actors,
            self.n_steps,
            noise_seed=0 if goes_on else int(th.randint(2**62, ()).item()),  # those who go on have theirs
            n_slots=self.n_slots,
            use_sde=self.use_sde,
            sde_sample_freq=self.sde_sample_freq,
            hold=lambda: None if self.hold_decisions is None else (self.gamma, self.hold_decisions),
            timeout=self.actor_timeout,
            max_restarts=self.max_restarts,
        ).start(goes_on)

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        pool = self._pool
        if pool is None:
            return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)
        assert isinstance(rollout_buffer, TimeAwareRolloutBuffer)
        return collect_from_actors(self, env, pool, callback, rollout_buffer)
