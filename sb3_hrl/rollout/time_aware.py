"""
Targets for decisions that last several steps: GAE and the truncation bootstrap with ``gamma ** n_held``.

In a semi-Markov process (Sutton, Precup and Singh 1999, section 3.2) a decision that lasts ``n`` steps and collects the
discounted reward ``R`` is worth ``R + gamma**n * V(next state)``. GAE (Schulman et al. 2016, eq. 16) keeps its form, with that
difference as its ``delta`` and ``gamma**n * lambda`` as its decay.
"""

import warnings
from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import CallbackList


class TimeAwareRolloutBuffer(RolloutBuffer):
    """
    SB3's ``RolloutBuffer`` with a discount of ``gamma ** n_held`` for each transition.

    ``n_held`` [T, E], int64, is the length of each decision in steps; owned by the buffer.
    """

    n_held: np.ndarray

    def reset(self) -> None:
        super().reset()
        self.n_held = np.ones((self.buffer_size, self.n_envs), dtype=np.int64)

    def compute_returns_and_advantage(self, last_values: th.Tensor, dones: np.ndarray) -> None:
        """
        GAE with a discount of its own for each transition. Equal to SB3's, bit for bit, if every decision lasts one step.

        :param last_values: values of the observations after the rollout [E]
        :param dones: whether the last transition ended its episode [E]
        """
        next_values = np.concatenate((self.values[1:], last_values.clone().cpu().numpy().reshape(1, -1)))
        next_non_terminal = 1.0 - np.concatenate((self.episode_starts[1:], dones.astype(np.float32).reshape(1, -1)))
        # In float64 up to the last product, then in float32 like the rest: SB3's scalar gamma * gae_lambda is rounded so too.
        discounts = np.float64(self.gamma) ** self.n_held
        decays = (discounts * self.gae_lambda).astype(np.float32)
        deltas = self.rewards + discounts.astype(np.float32) * next_values * next_non_terminal - self.values
        advantage = np.zeros(self.n_envs, dtype=np.float32)
        for step in reversed(range(self.buffer_size)):
            advantage = deltas[step] + decays[step] * next_non_terminal[step] * advantage
            self.advantages[step] = advantage
        self.returns = self.advantages + self.values


class TimeAwareDictRolloutBuffer(TimeAwareRolloutBuffer, DictRolloutBuffer):
    """The same for dictionary observations."""


class TimeAwareCallback(CallbackList):
    """
    Stands around the user's callbacks in ``collect_rollouts``, which calls it between ``env.step`` and ``buffer.add``.

    Before them it notes how long each decision lasted, and puts a finished episode into the task's units if a ``Monitor``
    outside the hold has counted decisions. After them it bootstraps the held decisions that a time limit cut, and clears their
    flag, so that SB3, which would discount by one step, leaves them alone.

    A native rollout, which is replayed step by step, has done both; it says so by ``n_held`` among its locals.
    """

    has_warned = False

    def _on_step(self) -> bool:
        if self.locals.get("n_held") is not None:
            self.model.count_decisions(self.locals["n_held"].tolist())  # type: ignore[attr-defined]
            return super()._on_step()
        infos: list[dict[str, Any]] = self.locals["infos"]
        for info in infos:
            if info.get("hold_episode", info.get("episode")) != info.get("episode"):
                self._replace_episode(info)
        n_held = [info.get("n_held", 1) for info in infos]
        buffer = self.model.rollout_buffer  # type: ignore[attr-defined]
        buffer.n_held[buffer.pos] = n_held
        self.model.count_decisions(n_held)  # type: ignore[attr-defined]
        self.model.keep_samples(infos, self.locals["clipped_actions"])  # type: ignore[attr-defined]
        continue_training = super()._on_step()
        for index, n in enumerate(n_held):
            is_timeout = infos[index].get("TimeLimit.truncated", False) and "terminal_observation" in infos[index]
            if n > 1 and self.locals["dones"][index] and is_timeout:
                self._bootstrap(index, n)
        return continue_training

    def _replace_episode(self, info: dict[str, Any]) -> None:
        info["episode"] = info["hold_episode"]
        if not self.has_warned:
            self.has_warned = True
            warnings.warn(
                "a Monitor lies outside ActionHold: its files count decisions, with rewards discounted inside the hold. "
                "Let make_vec_env apply the hold: make_vec_env(env_id, wrapper_class=ActionHold, wrapper_kwargs={...})"
            )

    def _bootstrap(self, index: int, n_held: int) -> None:
        info = self.locals["infos"][index]
        policy = self.model.policy
        with th.no_grad():
            value = policy.predict_values(policy.obs_to_tensor(info["terminal_observation"])[0])  # type: ignore[operator]
        # Rounded before it is added: NumPy 1 would add in float64.
        self.locals["rewards"][index] += np.float32(self.model.gamma**n_held * value.item())  # type: ignore[attr-defined]
        info["TimeLimit.truncated"] = False
