"""What our on-policy algorithms share: decisions that may last several steps, and native rollouts."""

import sys
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from sb3_hrl.carried import Carried, carry
from sb3_hrl.checkpoint import Resumable
from sb3_hrl.cnn import NatureCnnPolicy
from sb3_hrl.rollout.images import ImageRolloutBuffer
from sb3_hrl.rollout.native_forward import native_forward
from sb3_hrl.rollout.native_rollout import collect_native, default_shard_size, why_lockstep
from sb3_hrl.rollout.normalization import FrozenNormalization
from sb3_hrl.rollout.time_aware import TimeAwareCallback, TimeAwareDictRolloutBuffer, TimeAwareRolloutBuffer
from sb3_hrl.wrappers import ActionHold

SelfTimeAwareAlgorithm = TypeVar("SelfTimeAwareAlgorithm", bound="TimeAwareAlgorithm")


class TimeAwareAlgorithm(Resumable):
    """
    An on-policy algorithm whose rollouts know how long each decision lasted, and may run in the native workers.

    Mixed into an algorithm of SB3's (``class HPPO(TimeAwareAlgorithm, PPO)``), or subclassed alone. It has no constructor;
    the algorithm's own sets ``rollout``, ``freeze_normalization`` and ``shard_size``, which HPPO describes.
    """

    rollout: str = "auto"
    freeze_normalization: bool = False
    shard_size: int | None = None
    # Decisions that each environment has taken under an ActionHold; None if there is no ActionHold. Saved with the model.
    hold_decisions: int | None = None
    # Steps of all environments since ``learn`` began.
    n_simulated_steps: int = 0
    # Where native rollouts are in their random numbers: the seed is drawn when the first one begins. Saved with the model.
    noise_seed: int | None = None
    n_noise_decisions: int = 0
    _lockstep_reason: str | None = None

    def _setup_model(self) -> None:
        name = type(self).__name__
        if self.rollout not in ("auto", "native", "lockstep"):
            raise ValueError(f"{name}: rollout: expected 'auto', 'native' or 'lockstep', got {self.rollout!r}")
        if self.shard_size is not None and (not isinstance(self.shard_size, int) or self.shard_size < 1):
            raise ValueError(f"{name}: shard_size: expected a whole number >= 1 or None, got {self.shard_size!r}")
        # SB3's own buffers come from a saved model of SB3's.
        if self.rollout_buffer_class in (None, RolloutBuffer, DictRolloutBuffer):
            if isinstance(self.observation_space, spaces.Dict):
                self.rollout_buffer_class = TimeAwareDictRolloutBuffer
            elif issubclass(self.policy_class, NatureCnnPolicy):
                self.rollout_buffer_class = ImageRolloutBuffer
            else:
                self.rollout_buffer_class = TimeAwareRolloutBuffer
        elif not issubclass(self.rollout_buffer_class, TimeAwareRolloutBuffer):
            raise ValueError(
                f"{name}: rollout_buffer_class: expected a subclass of TimeAwareRolloutBuffer or TimeAwareDictRolloutBuffer, "
                f"got {self.rollout_buffer_class.__name__}"
            )
        # It sets the random seed; a model that was loaded goes on with its random numbers all the same.
        noise = self.noise_seed, self.n_noise_decisions
        super()._setup_model()
        self.noise_seed, self.n_noise_decisions = noise
        if self.env is not None:
            self._meet_hold(self.env)
            self._can_run_natively(self.env)

    # --- rollouts -------------------------------------------------------------------------------------------------------

    def _can_run_natively(self, env: VecEnv) -> bool:
        """
        :param env: the environments to train on
        :return: whether the next rollout is native
        """
        if self.rollout == "lockstep":
            return False
        reason = why_lockstep(self.policy, env, self.rollout_buffer)
        if reason is not None and self.rollout == "native":
            raise ValueError(f"{type(self).__name__}: rollout: 'native' is not possible: {reason}")
        if reason not in (None, self._lockstep_reason) and self.verbose >= 1:
            print(f"Rollouts in lock-step, since {reason}")
        self._lockstep_reason = reason
        return reason is None

    def set_random_seed(self, seed: int | None = None) -> None:
        super().set_random_seed(seed)
        if seed is not None:
            self.noise_seed, self.n_noise_decisions = None, 0

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        if self._can_run_natively(env):
            assert isinstance(rollout_buffer, TimeAwareRolloutBuffer)
            return self._collect_natively(env, callback, rollout_buffer, n_rollout_steps)
        callback.update_locals({"n_held": None})  # no native rollout
        with native_forward(self.policy):
            if not (self.freeze_normalization and isinstance(env, VecNormalize)):
                return super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps)
            frozen = FrozenNormalization(env)
            is_going_on = super().collect_rollouts(frozen, callback, rollout_buffer, n_rollout_steps)
            frozen.update()
            return is_going_on

    def _collect_natively(
        self,
        env: VecEnv,
        callback: BaseCallback,
        buffer: TimeAwareRolloutBuffer,
        n_rollout_steps: int,
        samples: np.ndarray | None = None,
    ) -> bool:
        """
        ``collect_native`` with the model's own random numbers.

        :param samples: output for a muscles' learner; see there
        """
        if self.noise_seed is None:
            self.noise_seed = int(th.randint(2**62, ()).item())
        noise = self.noise_seed, self.n_noise_decisions
        shard_size = self.shard_size or default_shard_size(env.num_envs)
        is_going_on = collect_native(self, env, callback, buffer, n_rollout_steps, shard_size, *noise, samples=samples)
        self.n_noise_decisions += n_rollout_steps  # not before: a checkpoint is taken when a rollout begins
        return is_going_on

    def keep_samples(self, infos: Sequence[dict[str, Any]], actions: np.ndarray) -> None:
        """
        Keep what a lower level learns from; there is none here.

        :param infos: of one step [E]
        :param actions: that led to it, as the environments took them [E, n_actions]
        """

    # --- action hold ----------------------------------------------------------------------------------------------------

    def _meet_hold(self, env: VecEnv) -> None:
        """
        See whether the environments hold actions; if so, the position in the annealing is the model's from now on.

        :param env: the environments to train on
        """
        holds = env.env_is_wrapped(ActionHold)
        if any(holds) and not all(holds):
            raise ValueError(
                f"{type(self).__name__}: either all environments have an ActionHold or none; "
                f"here {sum(holds)} of {len(holds)} have"
            )
        self.hold_decisions = (self.hold_decisions or 0) if all(holds) else None

    def learn(
        self: SelfTimeAwareAlgorithm,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1,
        tb_log_name: str | None = None,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfTimeAwareAlgorithm:
        tb_log_name = type(self).__name__ if tb_log_name is None else tb_log_name
        super().learn(total_timesteps, callback, log_interval, tb_log_name, reset_num_timesteps, progress_bar)
        # Whoever uses the environments next finds them in the task's own units.
        self._configure_hold(gamma=1.0)
        return self

    def _configure_hold(self, gamma: float) -> None:
        if self.hold_decisions is not None:
            assert self.env is not None
            self.env.env_method("configure_hold", gamma, self.hold_decisions)

    def _setup_learn(self, *args: Any, **kwargs: Any) -> tuple[int, BaseCallback]:
        assert self.env is not None
        self.n_simulated_steps = 0
        self._meet_hold(self.env)
        self._configure_hold(self.gamma)
        return super()._setup_learn(*args, **kwargs)

    def _init_callback(self, callback: MaybeCallback, progress_bar: bool = False) -> BaseCallback:
        if not isinstance(callback, list):
            callback = [callback if isinstance(callback, BaseCallback) else ConvertCallback(callback)]
        return super()._init_callback(TimeAwareCallback(callback), progress_bar)

    def count_decisions(self, n_held: Sequence[int]) -> None:
        """
        Count one decision of every environment.

        :param n_held: how many steps each one lasted [E]
        """
        self.n_simulated_steps += sum(n_held)
        if self.hold_decisions is not None:
            self.hold_decisions += 1

    def dump_logs(self, iteration: int = 0) -> None:
        seconds = max((time.time_ns() - self.start_time) / 1e9, sys.float_info.epsilon)
        self.logger.record("rollout/n_held_mean", float(self.rollout_buffer.n_held.mean()))  # type: ignore[attr-defined]
        self.logger.record("time/simulated_fps", int(self.n_simulated_steps / seconds))
        super().dump_logs(iteration)

    def _carried(self) -> Carried | None:
        """What actions bring along to the environments: evaluation holds as training does now."""
        return None if self.hold_decisions is None else Carried(self.hold_decisions)

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        actions, state = super().predict(observation, state, episode_start, deterministic)
        carried = self._carried()
        return (actions if carried is None else carry(actions, carried)), state
