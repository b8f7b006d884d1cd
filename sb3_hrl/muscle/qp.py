"""The exact low level: activations by a bounded quadratic programme. ``native/src/low_level.cpp`` is the fast twin."""

import mujoco
import numpy as np

from sb3_hrl.errors import NativeError
from sb3_hrl.muscle.interface import MuscleState

# Of the torques' error, Nm, and of the squared activations beside it.
DEFAULT_TORQUE_SCALE = 100.0
DEFAULT_EFFORT = 1e-4


class QpLowLevel:
    """
    The activations in [0, 1] that come nearest to a torque, with the least effort among equals::

        min |(torque_per_activation @ a - desired_torque) / torque_scale|^2 + effort * |a|^2

    :param torque_scale: Nm
    :param effort: > 0; the smaller, the more exact and the less unique
    """

    is_torque = False

    def __init__(self, torque_scale: float = DEFAULT_TORQUE_SCALE, effort: float = DEFAULT_EFFORT) -> None:
        for name, value in (("torque_scale", torque_scale), ("effort", effort)):
            if not (np.isfinite(value) and value > 0):
                raise ValueError(f"{name}: expected a finite number > 0, got {value!r}")
        self.torque_scale, self.effort = float(torque_scale), float(effort)

    def activate(self, state: MuscleState, desired_torque: np.ndarray, weight: float) -> np.ndarray:
        """
        :param state: what the muscles can do
        :param desired_torque: ``[D]``, Nm
        :param weight: a cascade's; not used
        :return: activations ``[M]``
        """
        torques = state.torque_per_activation
        n = torques.shape[1]
        square = self.torque_scale * self.torque_scale
        matrix, vector = np.zeros((n, n)), np.zeros(n)
        for row, torque in zip(torques, desired_torque, strict=True):  # in this order, as the native core adds
            matrix += row[:, None] * row[None, :]
            vector -= row * torque
        matrix /= square
        vector /= square
        matrix[np.arange(n), np.arange(n)] += self.effort
        activation, factor = np.zeros(n), np.zeros((n, n + 7))
        if mujoco.mju_boxQP(activation, factor, None, matrix, vector, np.zeros(n), np.ones(n)) < 0:
            raise NativeError("the quadratic programme for the activations failed")
        return activation


class TorqueLowLevel:
    """No muscles: the desired torque itself is applied to the joints. It shows what joint targets alone give."""

    is_torque = True

    def activate(self, state: MuscleState, desired_torque: np.ndarray, weight: float) -> np.ndarray:
        """
        :param state: what the muscles can do
        :param desired_torque: ``[D]``, Nm
        :param weight: not used
        :return: zeros ``[M]``
        """
        return np.zeros(state.torque_per_activation.shape[1])
