"""What a muscle network minimises: no labels, only the torques that its activations make."""

from typing import NamedTuple

import numpy as np
import torch as th


class Pattern(NamedTuple):
    """
    Which muscle and which coordinate each packed number belongs to, as matrices of zeros and ones: products with them are
    faster than gathering and scattering, and the same on every device.

    :param spread: ``[M, P]``, from muscles to packed numbers
    :param collect: ``[P, D]``, from packed numbers to coordinates
    """

    spread: th.Tensor
    collect: th.Tensor


class LossTerms(NamedTuple):
    """
    :param total: what is minimised
    :param torque: mean squared error of the torques, in parts of the scale
    :param effort: mean squared activation
    :param pre_activation: mean squared pre-activation
    """

    total: th.Tensor
    torque: th.Tensor
    effort: th.Tensor
    pre_activation: th.Tensor


def make_pattern(pattern: np.ndarray, n_coords: int, n_muscles: int, device: th.device | str = "cpu") -> Pattern:
    """
    :param pattern: ``[P]``, where each packed number stands in the flat ``[D, M]``, as in ``MuscleInterface.pattern``
    :param n_coords: D
    :param n_muscles: M
    :param device: of the matrices
    :return: the matrices
    """
    index = th.as_tensor(np.asarray(pattern, np.int64))
    spread = th.nn.functional.one_hot(index % n_muscles, n_muscles).T.float().contiguous()
    collect = th.nn.functional.one_hot(index // n_muscles, n_coords).float()
    return Pattern(spread.to(device), collect.to(device))


def produced_torque(pattern: Pattern, packed: th.Tensor, activation: th.Tensor) -> th.Tensor:
    """
    ``torque_per_activation @ activation``, from the packed form.

    :param pattern: the matrices
    :param packed: ``[B, P]``, Nm
    :param activation: ``[B, M]``
    :return: ``[B, D]``, Nm
    """
    return (packed * (activation @ pattern.spread)) @ pattern.collect


def muscle_loss(
    pattern: Pattern,
    packed: th.Tensor,
    desired_torque: th.Tensor,
    pre_activation: th.Tensor,
    scale: th.Tensor,
    effort_weight: float,
    pre_activation_weight: float,
) -> LossTerms:
    """
    With ``a = relu(tanh(u))``::

        mean(((JtA a - tau) / scale)^2) + effort_weight * mean(a^2) + pre_activation_weight * mean(u^2)

    The last term keeps ``u`` near zero, where a muscle that is off can come back.

    :param pattern: the matrices
    :param packed: ``[B, P]``, the entries of ``JtA``, Nm
    :param desired_torque: ``tau``, ``[B, D]``, Nm
    :param pre_activation: ``u``, ``[B, M]``
    :param scale: ``[D]``, Nm
    :param effort_weight: of the squared activations
    :param pre_activation_weight: of the squared pre-activations
    :return: the terms
    """
    activation = th.relu(th.tanh(pre_activation))
    torque = (((produced_torque(pattern, packed, activation) - desired_torque) / scale) ** 2).mean()
    effort = (activation**2).mean()
    size = (pre_activation**2).mean()
    return LossTerms(torque + effort_weight * effort + pre_activation_weight * size, torque, effort, size)
