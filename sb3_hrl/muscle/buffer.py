"""Where the workers leave what the muscle network learns from."""

import numpy as np


class MuscleBuffer:
    """
    One tuple per decision and environment: what the muscles could do, and what they should have done, in one substep.

    :param n_steps: T
    :param n_envs: E
    :param n_packed: P
    :param n_coords: D
    :ivar samples: ``[T, E, P + D]`` float32: ``packed`` and ``desired_torque``, Nm; owned by the buffer, written in place
    :ivar weights: ``[T, E]`` float32: the weight of a cascade's newest level; one without a cascade
    """

    def __init__(self, n_steps: int, n_envs: int, n_packed: int, n_coords: int) -> None:
        self.samples = np.zeros((n_steps, n_envs, n_packed + n_coords), np.float32)
        self.weights = np.ones((n_steps, n_envs), np.float32)
        self.pos = 0

    def reset(self) -> None:
        """Forget what is there; the memory stays."""
        self.pos = 0

    def fill(self, weights: np.ndarray | float = 1.0) -> None:
        """
        Say that the workers have written all of ``samples``.

        :param weights: of the newest level, ``[T, E]`` or one number
        """
        self.weights[:] = weights
        self.pos = len(self.samples)

    def add(self, samples: np.ndarray, weights: np.ndarray | float = 1.0) -> None:
        """
        One step of all environments.

        :param samples: ``[E, P + D]``
        :param weights: of the newest level, ``[E]`` or one number
        """
        if self.pos == len(self.samples):
            raise ValueError(f"the muscle buffer is full: it holds {self.pos} steps; call reset first")
        self.samples[self.pos] = samples
        self.weights[self.pos] = weights
        self.pos += 1

    def tuples(self) -> np.ndarray:
        """
        :return: ``[N, P + D + 1]`` float32, a copy: samples and weights of all steps so far, without those that hold something
            else than finite numbers (of a simulation that diverged)
        """
        rows = np.concatenate((self.samples[: self.pos], self.weights[: self.pos, :, None]), axis=2)
        rows = rows.reshape(-1, rows.shape[2])
        return rows[np.isfinite(rows).all(axis=1)]
