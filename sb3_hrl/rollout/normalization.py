"""``VecNormalize`` with statistics that stay as they are during a rollout and learn from all of it at its end."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecNormalize
from stable_baselines3.common.vec_env.base_vec_env import VecEnvObs, VecEnvStepReturn, VecEnvWrapper

from sb3_hrl import native
from sb3_hrl.envs.engine import Engine, sum_block


def update_normalization(
    normalize: VecNormalize,
    raw_obs: Sequence[Any] | np.ndarray | None,
    rewards: np.ndarray,
    dones: np.ndarray,
    envs: slice = slice(None),
) -> None:
    """
    Learn from a whole rollout at once: one batch of observations, and one of discounted returns. The slow twin of
    ``update_normalization_natively``.

    :param normalize: whose statistics; they change only while it is training
    :param raw_obs: observations after each step, ``T`` arrays (or dicts of arrays) [E, ...]; may be None without ``norm_obs``
    :param rewards: as they came from the environments [T, E]
    :param dones: whether an episode ended [T, E]
    :param envs: which of its environments these are
    """
    if not normalize.training:
        normalize.returns[envs][dones.any(axis=0)] = 0
        return
    if normalize.norm_obs:
        assert raw_obs is not None
        if isinstance(normalize.obs_rms, dict):
            for key, obs_rms in normalize.obs_rms.items():
                obs_rms.update(np.concatenate([obs[key] for obs in raw_obs]))
        else:
            normalize.obs_rms.update(np.concatenate(raw_obs))
    returns, running = np.empty(rewards.shape), normalize.returns[envs]
    for step in range(len(rewards)):
        running = returns[step] = running * normalize.gamma + rewards[step]
        running = np.where(dones[step], 0.0, running)
    normalize.returns = normalize.returns.copy()
    normalize.returns[envs] = running
    normalize.ret_rms.update(returns.reshape(-1))


def update_normalization_natively(
    normalize: VecNormalize, engine: Engine, raw_obs: np.ndarray | None, rewards: np.ndarray, dones: np.ndarray
) -> None:
    """
    ``update_normalization`` with its sums in the native workers, in NumPy's order: equal to the last bit.

    :param normalize: whose statistics; not of dictionaries
    :param engine: whose worker threads
    :param raw_obs: observations after each step [T, E, n_obs], float64; may be None without ``norm_obs``
    :param rewards: as they came from the environments [T, E], float32
    :param dones: whether an episode ended [T, E], bool
    """
    if not normalize.training:
        update_normalization(normalize, raw_obs, rewards, dones)
        return
    if normalize.norm_obs:
        assert raw_obs is not None
        assert isinstance(normalize.obs_rms, RunningMeanStd)
        means, variances = engine.column_moments(raw_obs.reshape(-1, raw_obs.shape[-1]))
        normalize.obs_rms.update_from_moments(means, variances, rewards.size)
    returns = np.array(normalize.returns, dtype=np.float64)
    mean, variance = native.load().return_moments(returns, rewards, dones.view(np.uint8), normalize.gamma, sum_block())
    normalize.returns = returns
    normalize.ret_rms.update_from_moments(np.float64(mean), np.float64(variance), rewards.size)  # type: ignore[arg-type]


class FrozenNormalization(VecEnvWrapper):
    """
    Stands before a ``VecNormalize`` for the length of one rollout.

    :param venv: whose statistics are to stay as they are until ``update``
    """

    venv: VecNormalize

    def __init__(self, venv: VecNormalize) -> None:
        super().__init__(venv)
        self._raw_obs: list[Any] = []
        self._rewards: list[np.ndarray] = []
        self._dones: list[np.ndarray] = []

    def reset(self) -> VecEnvObs:
        raise RuntimeError("a rollout does not reset its environments")

    def step_wait(self) -> VecEnvStepReturn:
        is_training, returns = self.venv.training, self.venv.returns.copy()
        self.venv.training = False
        try:
            obs, rewards, dones, infos = self.venv.step_wait()
        finally:
            # Callbacks, which may save it, see it as it is.
            self.venv.training, self.venv.returns = is_training, returns
        self._raw_obs.append(self.venv.old_obs)
        self._rewards.append(self.venv.old_reward)
        self._dones.append(dones)
        return obs, rewards, dones, infos

    def update(self) -> None:
        """Learn from the rollout."""
        if self._rewards:
            update_normalization(self.venv, self._raw_obs, np.stack(self._rewards), np.stack(self._dones))
