"""Targets of a semi-Markov process from their definition as weighted sums, without any recursion."""

from collections.abc import Sequence

import numpy as np


def discounted_hold_reward(step_rewards: Sequence[float], gamma: float) -> float:
    """
    :param step_rewards: rewards of the steps of one decision
    :param gamma: discount of a step
    :return: sum of gamma**i * reward_i
    """
    return float(sum(gamma**i * reward for i, reward in enumerate(step_rewards)))


def k_decision_return(
    rewards: np.ndarray, n_held: np.ndarray, values: np.ndarray, start: int, k: int, gamma: float, is_end: bool
) -> float:
    """
    The return that looks ``k`` decisions ahead and then trusts the value function.

    :param rewards: discounted reward of each decision [T]
    :param n_held: steps of each decision [T]
    :param values: value before each decision, and one after the last [T + 1]
    :param start: the decision it is the return of
    :param k: how far it looks ahead
    :param gamma: discount of a step
    :param is_end: whether the episode ends with the k-th decision: then there is no value behind it
    :return: sum of gamma**(steps before decision i) * reward_i, plus the discounted value
    """
    elapsed_steps, total = 0, 0.0
    for i in range(start, start + k):
        total += gamma**elapsed_steps * float(rewards[i])
        elapsed_steps += int(n_held[i])
    return total if is_end else total + gamma**elapsed_steps * float(values[start + k])


def gae(
    rewards: np.ndarray, n_held: np.ndarray, values: np.ndarray, ends: np.ndarray, gamma: float, gae_lambda: float
) -> np.ndarray:
    """
    GAE as the lambda-weighted mean of the k-decision returns (Schulman et al. 2016, eq. 16, before it is telescoped).

    :param rewards: [T]
    :param n_held: [T]
    :param values: [T + 1]
    :param ends: whether the episode ends with decision t [T]
    :param gamma: discount of a step
    :param gae_lambda: weight of a decision
    :return: advantages [T], float64
    """
    n_decisions = len(rewards)
    advantages = np.zeros(n_decisions)
    for start in range(n_decisions):
        horizon = next((t for t in range(start, n_decisions) if ends[t]), n_decisions - 1) - start + 1
        mean = 0.0
        for k in range(1, horizon + 1):
            weight = gae_lambda ** (k - 1) * ((1 - gae_lambda) if k < horizon else 1.0)
            is_end = bool(ends[start + k - 1])
            mean += weight * k_decision_return(rewards, n_held, values, start, k, gamma, is_end)
        advantages[start] = mean - float(values[start])
    return advantages
