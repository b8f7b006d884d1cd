"""
Features of images for acting, by the native module: without gradients, without the interpreter between the layers, with the
weights in oneDNN's order.

The slow twin is the extractor's own ``forward``; both agree up to rounding.
"""

import os
from threading import Lock
from typing import Any

import numpy as np
import torch as th
from torch import nn
from torch.nn.modules.module import _has_any_global_hook

from sb3_hrl import native


class NativeFeatures:
    """
    Answers for a network of convolutions, each followed by ReLU, and one layer more, as long as nobody looks into it.

    The native module has the weights until torch says that a parameter has changed. Torch does not know what optimisers in
    their fused form do, or who writes through ``data``: drop this then. A copy or a pickle of it is None.
    """

    def __init__(self) -> None:
        self._lock = Lock()  # one question at a time
        self._layers: list[nn.Module] = []
        self._state: Any = None
        self._network: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()

    def compute(
        self, layers: nn.Sequential, connection: nn.Sequential, images: th.Tensor, white: float, halves: bool, n_threads: int
    ) -> th.Tensor | None:
        """
        :param layers: convolutions without padding, each followed by ReLU, then Flatten
        :param connection: Linear, then ReLU
        :param images: bytes [B, C, H, W]
        :param white: what a white pixel is
        :param halves: whether the products are of numbers of 16 bits
        :param n_threads: that share the images
        :return: features [B, n_features]; None if that is not possible here
        """
        pixels = images.permute(0, 2, 3, 1)
        if images.dtype != th.uint8 or images.device.type != "cpu" or not pixels.is_contiguous():
            return None
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._compute(layers, connection, pixels, white, halves, n_threads)
        finally:
            self._lock.release()

    def _compute(
        self, layers: nn.Sequential, connection: nn.Sequential, pixels: th.Tensor, white: float, halves: bool, n_threads: int
    ) -> th.Tensor | None:
        now = [*layers, *connection]
        parameters = [parameter for layer in now for parameter in layer._parameters.values() if parameter is not None]
        geometry = tuple(pixels.shape[1:]), white, halves, n_threads, os.getpid()
        state = (*geometry, *((parameter.data_ptr(), parameter._version) for parameter in parameters))
        if (state, now) != (self._state, self._layers):
            self._state, self._network = None, None
            self._network = _make_network(layers, connection, *geometry[:4])
            self._state, self._layers = state, now
        if self._network is None or any(is_watched(layer) for layer in (layers, connection, *now)):
            return None
        return th.from_numpy(self._network.features(pixels.numpy()))


def is_watched(layer: nn.Module) -> bool:
    """
    :param layer: of a network
    :return: whether it must be called, since somebody's hooks see what passes, or its ``forward`` is another one
    """
    has_own_forward = getattr(layer.forward, "__func__", None) is not type(layer).forward
    return bool(layer._forward_hooks or layer._forward_pre_hooks) or has_own_forward or _has_any_global_hook()


def _make_network(
    layers: nn.Sequential, connection: nn.Sequential, image: tuple[int, ...], white: float, halves: bool, n_threads: int
) -> Any:
    """The native network, or None for layers that it does not know."""
    *pairs, flatten = layers
    convs, relus = pairs[::2], pairs[1::2]
    is_known = (
        [type(layer) for layer in connection] == [nn.Linear, nn.ReLU]
        and connection[0].bias is not None
        and type(flatten) is nn.Flatten
        and all(type(relu) is nn.ReLU for relu in relus)
        and len(relus) == len(convs) > 0
        and all(type(conv) is nn.Conv2d and _is_plain(conv) for conv in convs)
    )
    parameters = [*layers.parameters(), *connection.parameters()]
    if not is_known or any(parameter.dtype != th.float32 or parameter.device.type != "cpu" for parameter in parameters):
        return None
    convolutions = [(*_arrays(conv), *conv.stride) for conv in convs]  # type: ignore[misc]
    return native.load().ImageNetwork(convolutions, _arrays(connection[0]), image, white, halves, n_threads)


def _is_plain(conv: nn.Conv2d) -> bool:
    return (conv.padding, conv.dilation, conv.groups) == ((0, 0), (1, 1), 1) and conv.bias is not None


def _arrays(layer: nn.Module) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias, as they are."""
    assert isinstance(layer, nn.Conv2d | nn.Linear)
    assert layer.bias is not None
    return layer.weight.detach().contiguous().numpy(), layer.bias.detach().contiguous().numpy()
