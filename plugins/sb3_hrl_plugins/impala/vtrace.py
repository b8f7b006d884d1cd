"""V-trace (Espeholt et al. 2018, IMPALA, section 4) as a pure function."""

from typing import NamedTuple

import torch as th


class VTrace(NamedTuple):
    """
    :param targets: what the values are regressed to, ``v_s`` [T, B]
    :param advantages: weights of the log-probabilities' gradients, ``rho_s * (r_s + gamma_s * v_{s+1} - V(x_s))`` [T, B]
    """

    targets: th.Tensor
    advantages: th.Tensor


def vtrace(
    log_ratios: th.Tensor,
    discounts: th.Tensor,
    rewards: th.Tensor,
    values: th.Tensor,
    last_values: th.Tensor,
    *,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    rho_bar_pg: float = 1.0,
    trace_lambda: float = 1.0,
) -> VTrace:
    """
    Value targets and advantages of a policy from the trajectories of another one.

    A discount of 0 ends an episode: nothing behind it reaches back. With ratios of one the advantages are GAE's.

    :param log_ratios: ``log(pi(a|x) / mu(a|x))`` of the target policy pi and the behaviour policy mu [T, B]
    :param discounts: of what follows each step; ``gamma ** n_held``, and 0 where the episode ended [T, B]
    :param rewards: [T, B]
    :param values: ``V(x)`` before each step [T, B]
    :param last_values: ``V(x)`` after the last step [B]
    :param rho_bar: bound of the ratios that weight the temporal differences: which policy the targets are the values of
    :param c_bar: bound of the ratios that carry them back: how fast, and with how much variance, it gets there
    :param rho_bar_pg: bound of the ratios that weight the advantages
    :param trace_lambda: decay of the traces (remark 2); the advantages look ahead as far as the targets
    :return: both without a gradient
    """
    _check_shapes(log_ratios, discounts, rewards, values, last_values)
    with th.no_grad():
        ratios = log_ratios.exp()
        next_values = th.cat((values[1:], last_values[None]))
        deltas = ratios.clamp(max=rho_bar) * (rewards + discounts * next_values - values)
        decays = discounts * trace_lambda * ratios.clamp(max=c_bar)
        differences = th.empty_like(values)  # v_s - V(x_s), by the recursion of remark 1
        difference = th.zeros_like(last_values)
        for step in reversed(range(len(values))):
            difference = deltas[step] + decays[step] * difference
            differences[step] = difference
        next_differences = th.cat((differences[1:], th.zeros_like(last_values)[None]))
        ahead = rewards + discounts * (next_values + trace_lambda * next_differences)
        return VTrace(values + differences, ratios.clamp(max=rho_bar_pg) * (ahead - values))


def _check_shapes(
    log_ratios: th.Tensor, discounts: th.Tensor, rewards: th.Tensor, values: th.Tensor, last_values: th.Tensor
) -> None:
    if values.ndim != 2 or len(values) == 0:
        raise ValueError(f"vtrace: values: expected shape [T, B] with T >= 1, got {list(values.shape)}")
    for name, tensor, shape in (
        ("log_ratios", log_ratios, values.shape),
        ("discounts", discounts, values.shape),
        ("rewards", rewards, values.shape),
        ("last_values", last_values, values.shape[1:]),
    ):
        if tensor.shape != shape:
            raise ValueError(f"vtrace: {name}: expected shape {list(shape)}, got {list(tensor.shape)}")
