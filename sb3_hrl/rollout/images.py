"""Rollouts of images, without copies between the orders of their channels."""

from typing import Any

import numpy as np
import torch as th
from stable_baselines3.common.type_aliases import RolloutBufferSamples
from stable_baselines3.common.vec_env import VecNormalize

from sb3_hrl.rollout.time_aware import TimeAwareRolloutBuffer


class ImageRolloutBuffer(TimeAwareRolloutBuffer):
    """
    A rollout of images that are kept as the environments give them: bytes with the channels last.

    ``frames`` [T, E, H, W, C], owned by the buffer and used again in every rollout; ``observations`` is its view
    [T, E, C, H, W]. A minibatch is gathered from it once, and reaches the policy in torch's ``channels_last`` order. The
    samples, and their order, are those of SB3's buffer.
    """

    frames: np.ndarray | None = None

    def reset(self) -> None:
        frames = self.frames
        super().reset()
        if frames is None:
            channels, height, width = self.obs_shape
            frames = np.zeros((self.buffer_size, self.n_envs, height, width, channels), self.observation_space.dtype)
        self.frames = frames
        self.observations = frames.transpose(0, 1, 4, 2, 3)

    @staticmethod
    def swap_and_flatten(arr: np.ndarray) -> np.ndarray:
        # Images stay where they are: ``_get_samples`` finds them by step and environment.
        return arr if arr.ndim == 5 else TimeAwareRolloutBuffer.swap_and_flatten(arr)

    def _get_samples(self, batch_inds: np.ndarray, env: VecNormalize | None = None) -> RolloutBufferSamples:
        assert self.frames is not None
        images = self.frames[batch_inds % self.buffer_size, batch_inds // self.buffer_size]
        columns: Any = (self.values, self.log_probs, self.advantages, self.returns)
        return RolloutBufferSamples(
            th.from_numpy(images).to(self.device).permute(0, 3, 1, 2),
            self.to_torch(self.actions[batch_inds].astype(np.float32, copy=False)),
            *(self.to_torch(column[batch_inds].flatten()) for column in columns),
        )
