"""V-trace from its definition as a sum (Espeholt et al. 2018, eq. 1), one state at a time, without any recursion."""

from typing import NamedTuple

import numpy as np


class Trajectory(NamedTuple):
    """
    What one environment went through.

    :param rewards: [T]
    :param gammas: discount of each step [T]
    :param ratios: pi(a|x) / mu(a|x) of each step [T]
    :param values: V(x) before each step, and one after the last [T + 1]
    :param ends: whether the episode ends with step t [T]
    :param end_values: value of the state that the episode ended in, if it ended there: 0 unless it was cut by a time limit [T]
    """

    rewards: np.ndarray
    gammas: np.ndarray
    ratios: np.ndarray
    values: np.ndarray
    ends: np.ndarray
    end_values: np.ndarray

    def value_behind(self, t: int) -> float:
        """V of the state that step t leads to."""
        return float(self.end_values[t] if self.ends[t] else self.values[t + 1])

    def last_of_episode(self, s: int) -> int:
        """The last step of the episode that step s belongs to, or of the trajectory."""
        while not self.ends[s] and s < len(self.rewards) - 1:
            s += 1
        return s


def target(trajectory: Trajectory, s: int, rho_bar: float, c_bar: float, trace_lambda: float = 1.0) -> float:
    """
    ``v_s = V(x_s) + sum_{t >= s} (prod_{s <= i < t} gamma_i c_i) rho_t (r_t + gamma_t V(x_{t+1}) - V(x_t))``; the sum stops
    with the episode.

    :param trajectory: whose
    :param s: which step of it
    :param rho_bar: bound of rho
    :param c_bar: bound of c
    :param trace_lambda: remark 2: c_i = lambda * min(c_bar, ratio_i)
    :return: v_s
    """
    total = float(trajectory.values[s])
    for t in range(s, trajectory.last_of_episode(s) + 1):
        weight = 1.0
        for i in range(s, t):
            weight *= trajectory.gammas[i] * trace_lambda * min(c_bar, trajectory.ratios[i])
        behind = trajectory.gammas[t] * trajectory.value_behind(t)
        total += weight * min(rho_bar, trajectory.ratios[t]) * (trajectory.rewards[t] + behind - trajectory.values[t])
    return total


def advantage(
    trajectory: Trajectory, s: int, rho_bar: float, c_bar: float, rho_bar_pg: float, trace_lambda: float = 1.0
) -> float:
    """
    ``rho_s (r_s + gamma_s v_{s+1} - V(x_s))``; with a lambda below one, ``v_{s+1}`` is mixed with ``V(x_{s+1})``.

    :param rho_bar_pg: bound of rho here
    :return: the weight of the gradient of log pi(a_s | x_s)
    """
    behind = trajectory.value_behind(s)
    if not trajectory.ends[s] and s < len(trajectory.rewards) - 1:
        behind = (1 - trace_lambda) * behind + trace_lambda * target(trajectory, s + 1, rho_bar, c_bar, trace_lambda)
    difference = trajectory.rewards[s] + trajectory.gammas[s] * behind - trajectory.values[s]
    return float(min(rho_bar_pg, trajectory.ratios[s]) * difference)
