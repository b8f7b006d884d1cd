"""Hierarchical PPO, built on the seams of SB3's PPO."""

import sys
import time
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback, ConvertCallback
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import MaybeCallback
from stable_baselines3.common.vec_env import VecEnv

from sb3_hrl.carried import Carried, carry
from sb3_hrl.hppo.policies import CnnPolicy, MlpPolicy, MultiInputPolicy
from sb3_hrl.rollout.time_aware import TimeAwareCallback, TimeAwareDictRolloutBuffer, TimeAwareRolloutBuffer
from sb3_hrl.wrappers import ActionHold

SelfHPPO = TypeVar("SelfHPPO", bound="HPPO")


class HPPO(PPO):
    """
    Hierarchical Proximal Policy Optimization.

    PPO whose decisions may last several steps of the environment (``ActionHold``): advantages, value targets and the
    bootstrap of truncated episodes use ``gamma ** n_held``. Where every decision lasts one step it is PPO, bit for bit.

    The parameters are those of ``stable_baselines3.PPO``. ``gamma`` is the discount of one step; the wrapper gets it from
    here. ``num_timesteps`` (and so ``n_timesteps``, ``eval_freq``, ...) counts decisions. ``rollout_buffer_class``, if given,
    must be time-aware: ``TimeAwareRolloutBuffer``, ``TimeAwareDictRolloutBuffer`` or a subclass.
    """

    policy_aliases: ClassVar[dict[str, type[BasePolicy]]] = {
        "MlpPolicy": MlpPolicy,
        "CnnPolicy": CnnPolicy,
        "MultiInputPolicy": MultiInputPolicy,
    }

    # Decisions that each environment has taken under an ActionHold; None if there is no ActionHold. Saved with the model.
    hold_decisions: int | None = None
    # Steps of all environments since ``learn`` began.
    n_simulated_steps: int = 0

    def _setup_model(self) -> None:
        # SB3's own buffers come from a saved PPO.
        if self.rollout_buffer_class in (None, RolloutBuffer, DictRolloutBuffer):
            is_dict = isinstance(self.observation_space, spaces.Dict)
            self.rollout_buffer_class = TimeAwareDictRolloutBuffer if is_dict else TimeAwareRolloutBuffer
        elif not issubclass(self.rollout_buffer_class, TimeAwareRolloutBuffer):
            raise ValueError(
                f"HPPO: rollout_buffer_class: expected a subclass of TimeAwareRolloutBuffer or TimeAwareDictRolloutBuffer, "
                f"got {self.rollout_buffer_class.__name__}"
            )
        super()._setup_model()
        if self.env is not None:
            self._meet_hold(self.env)

    def _meet_hold(self, env: VecEnv) -> None:
        """
        See whether the environments hold actions; if so, the position in the annealing is the model's from now on.

        :param env: the environments to train on
        """
        holds = env.env_is_wrapped(ActionHold)
        if any(holds) and not all(holds):
            raise ValueError(
                f"HPPO: either all environments have an ActionHold or none; here {sum(holds)} of {len(holds)} have"
            )
        self.hold_decisions = (self.hold_decisions or 0) if all(holds) else None

    def learn(
        self: SelfHPPO,
        total_timesteps: int,
        callback: MaybeCallback = None,
        log_interval: int = 1,
        tb_log_name: str = "HPPO",
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
    ) -> SelfHPPO:
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

    def predict(
        self,
        observation: np.ndarray | dict[str, np.ndarray],
        state: tuple[np.ndarray, ...] | None = None,
        episode_start: np.ndarray | None = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, tuple[np.ndarray, ...] | None]:
        actions, state = super().predict(observation, state, episode_start, deterministic)
        if self.hold_decisions is None:
            return actions, state
        # Evaluation holds as training does now, in whatever environment the action ends up.
        return carry(actions, Carried(self.hold_decisions)), state
