"""
Networks for images that stay as the environments give them: bytes with the channels last.

SB3 shows images as [B, C, H, W]. Where that is a view of memory in the order [B, H, W, C] (torch's ``channels_last``), these
extractors keep the order through every layer, which CPUs are faster with, and no layer copies it. The division by 255 happens
in the first layer's weights, which are few, instead of in the pixels, which are many. A minibatch goes through the layers in
portions that fit into a CPU's cache, one in each thread (``sb3_hrl.portions``).

With ``precision: bfloat16`` the layers multiply numbers of 16 bits and add in 32 (torch's autocast); weights, their gradients
and the optimiser stay in 32, and so does all that follows the features. CPUs with AVX512-BF16 or AMX are faster so.
"""

import math
from collections.abc import Iterable, Sequence
from functools import wraps
from typing import Any

import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import ActorCriticCnnPolicy
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, NatureCNN
from stable_baselines3.common.type_aliases import Schedule
from torch import nn
from torch.nn import functional as F

from sb3_hrl.native_images import NativeFeatures, is_watched
from sb3_hrl.portions import apply_in_portions


class NatureCnn(NatureCNN):
    """
    SB3's ``NatureCNN``, with the same weights under the same names, for bytes with the channels last.

    :param observation_space: images of bytes, channels first
    :param features_dim: how many features
    :param white: what a white pixel is; 255 where the policy does not normalise images, as those below do not
    :param normalized_image: what SB3 tells its own network then; of no effect
    :param precision: of the layers' products, ``float32`` or ``bfloat16``
    """

    # Images that go through the layers together when there is something to learn. More of them are slower: their memory is
    # asked of the system every time.
    portion = 64
    # When there is not: few, so that there are some for each thread.
    acting_portion = 8
    # Portions at a time; None for as many as torch has threads.
    n_threads: int | None = None
    # What computes while a rollout is collected, if that is possible (``native_forward``).
    native: NativeFeatures | None = None

    def __init__(
        self,
        observation_space: spaces.Box,
        features_dim: int = 512,
        white: float = 1.0,
        normalized_image: bool = False,
        precision: str = "float32",
    ) -> None:
        _check_images(observation_space)
        super().__init__(observation_space, features_dim)
        self.white = white
        self.halves = _read_precision(precision)
        for layer in self.cnn:
            if isinstance(layer, nn.ReLU):
                layer.inplace = True
        self.height, self.width = (_used_size(self.cnn, size) for size in observation_space.shape[1:])

    def forward(self, observations: th.Tensor) -> th.Tensor:
        if self.native is not None and not th.is_grad_enabled():
            n_threads = self.n_threads or th.get_num_threads()
            features = self.native.compute(self.cnn, self.linear, observations, self.white, self.halves, n_threads)
            if features is not None:
                return features
        return _extract(self, self.cnn, self.linear[0], observations)

    def convolve(self, pixels: th.Tensor) -> th.Tensor:
        """From pixels to flat features, before the last layer."""
        first, *others = self.cnn
        x = _first_layer(first, pixels[:, :, : self.height, : self.width], self.white, self.halves)
        for layer in others:
            x = layer(x)
        return x


class ImpalaCnn(BaseFeaturesExtractor):
    """
    The residual network of IMPALA (Espeholt et al. 2018, figure 3, right), as OpenAI's Procgen baselines have it.

    :param observation_space: images of bytes, channels first
    :param features_dim: how many features
    :param channels: of each section; a section halves the picture and has two residual blocks
    :param white: what a white pixel is; 255 where the policy does not normalise images, as those below do not
    :param precision: of the layers' products, ``float32`` or ``bfloat16``
    """

    portion = NatureCnn.portion
    acting_portion = NatureCnn.acting_portion
    n_threads: int | None = None

    def __init__(
        self,
        observation_space: spaces.Box,
        features_dim: int = 256,
        channels: Sequence[int] = (16, 32, 32),
        white: float = 1.0,
        precision: str = "float32",
    ) -> None:
        _check_images(observation_space)
        super().__init__(observation_space, features_dim)
        self.white = white
        self.halves = _read_precision(precision)
        n_channels, height, width = observation_space.shape
        self.sections = nn.ModuleList()
        for n_out in channels:
            self.sections.append(_Section(n_channels, n_out))
            n_channels, height, width = n_out, (height + 1) // 2, (width + 1) // 2
        self.linear = nn.Linear(n_channels * height * width, features_dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot's weights and no biases, as in OpenAI's baselines: SB3's orthogonal ones grow from block to block."""
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)

    def forward(self, observations: th.Tensor) -> th.Tensor:
        return _extract(self, self.sections, self.linear, observations)

    def convolve(self, pixels: th.Tensor) -> th.Tensor:
        """From pixels to flat features, before the last layer."""
        x = pixels
        for index, section in enumerate(self.sections):
            assert isinstance(section, _Section)
            x = section.residual(_first_layer(section.conv, x, self.white, self.halves) if index == 0 else section.conv(x))
        return F.relu_(x).flatten(1)


class _Section(nn.Module):
    """A convolution, a pooling that halves the picture, two residual blocks."""

    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, 3, padding=1)
        self.blocks = nn.ModuleList(
            [nn.ModuleList([nn.Conv2d(n_out, n_out, 3, padding=1) for _ in range(2)]) for _ in range(2)]
        )

    def residual(self, x: th.Tensor) -> th.Tensor:
        """All that follows the convolution. In place where no gradient needs what was there."""
        x = F.max_pool2d(x, 3, stride=2, padding=1)
        for block in self.blocks:
            assert isinstance(block, nn.ModuleList)
            x = block[1](F.relu_(block[0](F.relu(x)))).add_(x)
        return x


def _check_images(observation_space: spaces.Space) -> None:
    if not is_image_space(observation_space):
        raise ValueError(f"expected images of bytes, channels first, got {observation_space}")


def _used_size(layers: Iterable[nn.Module], size: int) -> int:
    """
    :param layers: convolutions without padding, and what stands between them
    :param size: pixels of a picture along one axis
    :return: how many of them reach the last layer: strides that do not fit leave a margin, of 4 of Procgen's 64
    """
    convs = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
    for conv in convs:
        size = (size - conv.kernel_size[0]) // conv.stride[0] + 1
    for conv in reversed(convs):
        size = (size - 1) * conv.stride[0] + conv.kernel_size[0]
    return size


def _extract(network: NatureCnn | ImpalaCnn, layers: nn.Module, linear: nn.Module, images: th.Tensor) -> th.Tensor:
    """
    :param network: whose features
    :param layers: those of ``network.convolve``
    :param linear: the one after them
    :param images: [B, C, H, W]
    :return: [B, features_dim]
    """
    assert isinstance(linear, nn.Linear)

    def convolve(portion: th.Tensor) -> th.Tensor:
        with _autocast(portion, network.halves):
            return network.convolve(portion)

    def connect(flat: th.Tensor) -> th.Tensor:
        with _autocast(flat, network.halves):
            return F.relu_(_multiply(linear, flat, network.halves))

    if not th.is_grad_enabled():
        both = apply_in_portions(lambda x: connect(convolve(x)), (), images, network.acting_portion, network.n_threads)
        return both.float() if network.halves else both
    # Of a small minibatch, too, there is something for several threads.
    n_rows, most = len(images), network.portion
    size, last_size = min(most, max(16, _share(n_rows, 4))), min(4 * most, max(64, _share(n_rows, 2)))
    flat = apply_in_portions(convolve, layers.parameters(), images, size, network.n_threads)
    features = apply_in_portions(connect, linear.parameters(), flat, last_size, network.n_threads)
    return features.float() if network.halves else features


def _share(n_rows: int, n_shares: int) -> int:
    """A share of rows, in sixteens."""
    return 16 * math.ceil(n_rows / n_shares / 16)


def _multiply(linear: nn.Linear, x: th.Tensor, halves: bool) -> th.Tensor:
    """
    The layer's answer. Torch has matrices of 32 bits multiplied by MKL, which leaves half of an AMD processor's vectors
    unused, and convolutions by oneDNN, which does not: so rows, if there are many, count as pixels of 16 images, and the
    weights as filters of one pixel.
    """
    n_rows = len(x)
    is_plain = type(linear) is nn.Linear and not is_watched(linear)
    if halves or not is_plain or x.dtype != th.float32 or x.device.type != "cpu" or n_rows < 64 or n_rows % 16 != 0:
        return linear(x)
    images = x.view(16, 1, n_rows // 16, -1).permute(0, 3, 1, 2)
    answer = F.conv2d(images, linear.weight[:, :, None, None], linear.bias)
    return answer.permute(0, 2, 3, 1).reshape(n_rows, -1)


class _FirstLayer(th.autograd.Function):
    """A convolution of bytes, which keeps them for the gradient of its weights: they are a fourth of the numbers."""

    @staticmethod
    def forward(ctx: Any, pixels: th.Tensor, weight: th.Tensor, bias: th.Tensor | None, *geometry: Any) -> th.Tensor:
        ctx.save_for_backward(pixels, weight)
        ctx.geometry = geometry
        return F.conv2d(pixels.to(weight.dtype), weight, bias, *geometry)

    @staticmethod
    def backward(ctx: Any, *gradients: th.Tensor) -> tuple[th.Tensor | None, ...]:
        pixels, weight = ctx.saved_tensors
        stride, padding = ctx.geometry
        _, of_weight, of_bias = th.ops.aten.convolution_backward(
            gradients[0],
            pixels.to(weight.dtype),
            weight,
            [len(weight)] if ctx.needs_input_grad[2] else None,
            stride,
            padding,
            (1, 1),
            False,
            (0, 0),
            1,
            (False, *ctx.needs_input_grad[1:3]),
        )
        return None, of_weight, of_bias, None, None


def _first_layer(conv: nn.Module, pixels: th.Tensor, white: float, halves: bool) -> th.Tensor:
    """The layer's answer to ``pixels / white``. Bytes are exact in either type."""
    assert isinstance(conv, nn.Conv2d)
    dtype = th.bfloat16 if halves else conv.weight.dtype
    weight, bias = (conv.weight / white).to(dtype), None if conv.bias is None else conv.bias.to(dtype)
    if pixels.dtype == th.uint8 and weight.requires_grad:
        return _FirstLayer.apply(pixels, weight, bias, conv.stride, conv.padding)
    return F.conv2d(pixels.to(dtype), weight, bias, conv.stride, conv.padding)


def _read_precision(precision: str) -> bool:
    """Whether the products are of numbers of 16 bits."""
    if precision not in ("float32", "bfloat16"):
        raise ValueError(f"features_extractor_kwargs: precision: expected 'float32' or 'bfloat16', got {precision!r}")
    return precision == "bfloat16"


def _autocast(images: th.Tensor, halves: bool) -> th.autocast:
    # All threads would share the cache of casts, and with it parts of their graphs.
    return th.autocast(images.device.type, th.bfloat16, enabled=halves, cache_enabled=False)


class NatureCnnPolicy(ActorCriticCnnPolicy):
    """
    SB3's ``CnnPolicy`` with a network of this module; action and value come right after it. The arguments are SB3's.

    The optimiser is Adam in its fused form by default, which rounds differently from the plain one; ``optimizer_kwargs``
    without ``fused`` gives the plain one.
    """

    default_extractor: type[BaseFeaturesExtractor] = NatureCnn

    @wraps(ActorCriticCnnPolicy.__init__)  # type: ignore[misc]
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Pixels reach the extractor as they are.
        defaults: dict[str, Any] = {
            "net_arch": [],
            "normalize_images": False,
            "features_extractor_class": self.default_extractor,
        }
        if kwargs.get("optimizer_class", th.optim.Adam) is th.optim.Adam:
            defaults["optimizer_kwargs"] = {"eps": 1e-5, "fused": True}
        kwargs = {**defaults, **kwargs}
        if not kwargs["normalize_images"] and issubclass(kwargs["features_extractor_class"], NatureCnn | ImpalaCnn):
            kwargs["features_extractor_kwargs"] = {"white": 255.0, **(kwargs.get("features_extractor_kwargs") or {})}
        super().__init__(*args, **kwargs)

    def _build(self, lr_schedule: Schedule) -> None:
        super()._build(lr_schedule)
        for module in self.modules():
            if isinstance(module, ImpalaCnn):
                module.reset_parameters()

    def extract_features(self, obs: Any, features_extractor: BaseFeaturesExtractor | None = None) -> Any:
        if self.normalize_images or not self.share_features_extractor:
            return super().extract_features(obs, features_extractor)
        # Not by SB3's preprocessing, which would make floats of a whole minibatch at once.
        return (features_extractor or self.features_extractor)(obs)


class ImpalaCnnPolicy(NatureCnnPolicy):
    """The same with IMPALA's network; ``features_extractor_kwargs: {channels: [32, 64, 64]}`` makes it wider."""

    default_extractor = ImpalaCnn
