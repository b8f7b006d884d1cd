"""The loss of a muscle network and its gradient, number by number from the equation."""

import math

import numpy as np


def muscle_loss(
    torque_per_activation: np.ndarray,
    desired_torque: np.ndarray,
    pre_activation: np.ndarray,
    scale: np.ndarray,
    effort_weight: float,
    pre_activation_weight: float,
) -> tuple[float, np.ndarray]:
    """
    :param torque_per_activation: JtA, ``[B, D, M]``
    :param desired_torque: tau, ``[B, D]``
    :param pre_activation: u, ``[B, M]``
    :param scale: ``[D]``
    :param effort_weight: of ``mean(a^2)``
    :param pre_activation_weight: of ``mean(u^2)``
    :return: ``mean(((JtA a - tau) / scale)^2) + effort_weight * mean(a^2) + pre_activation_weight * mean(u^2)`` with
        ``a = max(tanh(u), 0)``, and its derivative by ``u``, ``[B, M]``
    """
    n_rows, n_coords, n_muscles = torque_per_activation.shape
    torque_sum = effort_sum = size_sum = 0.0
    gradient = np.zeros((n_rows, n_muscles))
    for b in range(n_rows):
        activation = [max(math.tanh(float(u)), 0.0) for u in pre_activation[b]]
        errors = []
        for d in range(n_coords):
            produced = sum(float(torque_per_activation[b, d, m]) * activation[m] for m in range(n_muscles))
            errors.append((produced - float(desired_torque[b, d])) / float(scale[d]))
        torque_sum += sum(error * error for error in errors)
        effort_sum += sum(a * a for a in activation)
        size_sum += sum(float(u) ** 2 for u in pre_activation[b])
        for m in range(n_muscles):
            by_activation = 2.0 * effort_weight * activation[m] / (n_rows * n_muscles)
            for d in range(n_coords):
                by_activation += 2.0 * errors[d] * float(torque_per_activation[b, d, m] / scale[d]) / (n_rows * n_coords)
            slope = 1.0 - activation[m] ** 2 if pre_activation[b, m] > 0 else 0.0
            own = 2.0 * pre_activation_weight * float(pre_activation[b, m]) / (n_rows * n_muscles)
            gradient[b, m] = by_activation * slope + own
    total = torque_sum / (n_rows * n_coords) + effort_weight * effort_sum / (n_rows * n_muscles)
    return total + pre_activation_weight * size_sum / (n_rows * n_muscles), gradient
