"""The muscles that a model hands to its environments, and the readable twin of the native network."""

import hashlib
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from sb3_hrl.muscle.qp import DEFAULT_EFFORT, DEFAULT_TORQUE_SCALE, QpLowLevel, TorqueLowLevel
from sb3_hrl.registry import suggest

if TYPE_CHECKING:
    from sb3_hrl.muscle.control import LowLevel
    from sb3_hrl.muscle.interface import MuscleState

LOW_LEVELS = ("network", "qp", "torque")
# Of the network's LeakyReLU.
SLOPE = 0.2

# One network: weight [n_in, n_out] and bias [n_out] of each layer, float32.
Level = tuple[tuple[np.ndarray, np.ndarray], ...]


@dataclass(frozen=True, eq=False)
class Muscles:
    """
    What travels from a model to its environments. Equal content has an equal ``version``, so an environment takes muscles
    over only if the version is another than its own.

    :param low_level: what turns torques into activations: ``network``, ``qp`` (exact and slow) or ``torque`` (no muscles)
    :param levels: the networks of a cascade, mostly one; not changed after this
    :param packed_scale: ``[P]`` float32, what the network's first inputs are divided by
    :param torque_scale: ``[D]`` float32, the same for the wanted torques
    :param qp_torque_scale: of the quadratic programme, Nm
    :param qp_effort: its weight of the squared activations
    :param body: ``MuscleInterface.body`` of the body that they are for; empty for any
    """

    low_level: str = "network"
    levels: tuple[Level, ...] = ()
    packed_scale: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    torque_scale: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    qp_torque_scale: float = DEFAULT_TORQUE_SCALE
    qp_effort: float = DEFAULT_EFFORT
    body: str = ""
    version: str = field(init=False)

    def __post_init__(self) -> None:
        if self.low_level not in LOW_LEVELS:
            hint = suggest(str(self.low_level), LOW_LEVELS)
            raise ValueError(f"low_level: expected {', '.join(LOW_LEVELS)}, got {self.low_level!r}{hint}")
        if (self.low_level == "network") != bool(self.levels):
            raise ValueError(f"levels: expected networks for the low level network only, got {len(self.levels)}")
        digest = hashlib.blake2b(
            repr((self.low_level, self.qp_torque_scale, self.qp_effort, self.body)).encode(), digest_size=16
        )
        layers = [array for level in self.levels for layer in level for array in layer]
        for array in (self.packed_scale, self.torque_scale, *layers):
            if array.dtype != np.float32:
                raise ValueError(f"expected scales, weights and biases in float32, got {array.dtype}")
            digest.update(repr(array.shape).encode())
            digest.update(np.ascontiguousarray(array).data)
        object.__setattr__(self, "version", digest.hexdigest())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Muscles) and other.version == self.version

    def __hash__(self) -> int:
        return hash(self.version)

    def check_body(self, body: str, name: str) -> None:
        """
        :param body: ``MuscleInterface.body`` of an environment
        :param name: of that environment
        :raises ValueError: if the muscles are for another body
        """
        if self.body not in ("", body):
            raise ValueError(
                f"{name}: the model's muscles are for another body: its joints or muscles are others, or in another order"
            )

    def to_low_level(self) -> "LowLevel":
        """
        :return: the readable low level, for ``MuscleControl``
        """
        if self.low_level == "qp":
            return QpLowLevel(self.qp_torque_scale, self.qp_effort)
        return TorqueLowLevel() if self.low_level == "torque" else NetworkLowLevel(self)

    def to_native(self) -> Any:
        """
        :return: the same as a ``_native.LowLevel``, with a copy of the network, which any number of environments share
        """
        from sb3_hrl import native

        module = native.load()
        if self.low_level == "qp":
            return module.QpLowLevel(self.qp_torque_scale, self.qp_effort)
        if self.low_level == "torque":
            return module.TorqueLowLevel()
        levels = [list(level) for level in self.levels]
        return module.NetworkLowLevel(module.MuscleNetwork(levels, self.packed_scale, self.torque_scale))


class NetworkLowLevel:
    """
    The learned low level.

    :param muscles: with a network
    """

    is_torque = False

    def __init__(self, muscles: Muscles) -> None:
        self.muscles = muscles

    def activate(self, state: "MuscleState", desired_torque: np.ndarray, weight: float) -> np.ndarray:
        """
        :param state: what the muscles can do
        :param desired_torque: ``[D]``, Nm
        :param weight: of a cascade's newest level
        :return: activations ``[M]``, float64
        """
        return activate(self.muscles, state.packed[None], desired_torque[None], np.array([weight]))[0]


def activate(muscles: Muscles, packed: np.ndarray, desired_torque: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """
    What ``native/src/muscle_network.cpp`` computes, with the same bits: every sum in order, in float32.

    :param muscles: with a network
    :param packed: ``[B, P]`` float64
    :param desired_torque: ``[B, D]`` float64, Nm
    :param weight: ``[B]``, of a cascade's newest level; those between it and the first count in full
    :return: activations ``[B, M]``, float64
    """
    inputs = np.concatenate(
        (packed.astype(np.float32) / muscles.packed_scale, desired_torque.astype(np.float32) / muscles.torque_scale), axis=1
    )
    total = _forward(muscles.levels[0], inputs)
    for number, level in enumerate(muscles.levels[1:], start=2):
        share = np.ones(len(inputs)) if number < len(muscles.levels) else weight
        share = share.astype(np.float32)[:, None]
        total = total + share * _forward(level, np.concatenate((np.float32(0.5) * total, share, inputs), axis=1))
    # NumPy's tanh is not libm's to the last bit. What is not a number stays one.
    flat = [0.0 if u <= 0.0 else math.tanh(u) for u in total.ravel().tolist()]
    return np.array(flat, np.float32).astype(np.float64).reshape(total.shape)


def _forward(level: Level, x: np.ndarray) -> np.ndarray:
    for number, (weight, bias) in enumerate(level):
        if number:
            x = np.where(x > 0, x, np.float32(SLOPE) * x)
        x = np.array([_add_up(np.concatenate((bias[None], row[:, None] * weight))) for row in x])
    return x


def _add_up(rows: np.ndarray) -> np.ndarray:
    """The sum of the rows from the first to the last. (NumPy adds pairwise, but only where numbers lie side by side.)"""
    return np.add.reduce(rows) if rows.shape[1] > 1 else np.add.accumulate(rows)[-1]
