"""A linear layer whose sums have an order."""

import numpy as np


def linear_in_order(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """
    ``y = x weightᵀ + bias``, in float32: the bias first, then the inputs from the first to the last, each product
    rounded before it is added.

    :param x: ``[B, n_in]`` float32
    :param weight: ``[n_out, n_in]`` float32
    :param bias: ``[n_out]`` float32
    :return: ``[B, n_out]`` float32
    """
    y = np.tile(bias, (len(x), 1))
    for column, weights in zip(x.T, weight.T, strict=True):
        y = y + column[:, None] * weights
    return y
