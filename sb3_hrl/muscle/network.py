"""The muscle network as torch trains it; ``Muscles`` is what environments run."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch as th
from torch import nn

from sb3_hrl.muscle.muscles import SLOPE, Muscles

if TYPE_CHECKING:
    from sb3_hrl.muscle.interface import MuscleInterface

# Chosen by benchmarks/muscles/network_size.py.
DEFAULT_HIDDEN = (128, 128)


class MuscleNetwork(nn.Module):
    """
    From what the muscles can do and what they shall do to their pre-activations ``u``; the activations are
    ``relu(tanh(u))``.

    In a cascade every level after the first adds to what those before it give, and they no longer learn::

        u = previous + weight * f([0.5 * previous, weight, packed, torque])

    :param n_packed: P
    :param n_coords: D
    :param n_muscles: M
    :param hidden: widths of the hidden layers
    :param packed_scale: what the packed torques per activation are divided by, ``[P]`` or one number, Nm
    :param torque_scale: the same for the wanted torques, ``[D]`` or one number, Nm
    :param seed: of the initial weights (Xavier, zero bias); torch's global random numbers are not touched
    """

    packed_scale: th.Tensor
    torque_scale: th.Tensor

    def __init__(
        self,
        n_packed: int,
        n_coords: int,
        n_muscles: int,
        hidden: Sequence[int] = DEFAULT_HIDDEN,
        packed_scale: float | np.ndarray = 200.0,
        torque_scale: float | np.ndarray = 200.0,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, size, scale in (("packed_scale", n_packed, packed_scale), ("torque_scale", n_coords, torque_scale)):
            full = np.broadcast_to(np.asarray(scale, np.float32), size).copy()
            if not (np.isfinite(full).all() and (full > 0).all()):
                raise ValueError(f"{name}: expected finite numbers > 0, got {scale!r}")
            self.register_buffer(name, th.from_numpy(full))
        self.n_muscles = n_muscles
        self.levels = nn.ModuleList()
        self.add_level(hidden, seed)

    @classmethod
    def for_interface(
        cls,
        interface: "MuscleInterface",
        hidden: Sequence[int] = DEFAULT_HIDDEN,
        torque_scale: float | np.ndarray | None = None,
        seed: int = 0,
    ) -> "MuscleNetwork":
        """
        A network in the size of a body: each input is divided by the most that the muscles reach at its coordinate.

        :param interface: the model's muscles
        :param hidden: widths of the hidden layers
        :param torque_scale: ``[D]`` or one number instead, Nm; 200 is what the method was published with
        :param seed: of the initial weights
        :return: the network
        """
        scale = interface.torque_reach if torque_scale is None else np.asarray(torque_scale, np.float64)
        scale = np.broadcast_to(scale, interface.n_coords)
        packed_scale = scale[interface.pattern // interface.n_muscles]
        return cls(interface.n_packed, interface.n_coords, interface.n_muscles, hidden, packed_scale, scale, seed)

    @classmethod
    def from_state_dict(cls, state: Mapping[str, th.Tensor]) -> "MuscleNetwork":
        """
        :param state: the ``state_dict`` of another network
        :return: its copy: the sizes follow from the arrays
        """
        shapes: dict[int, list[th.Size]] = {}
        for name, tensor in state.items():
            if name.endswith(".weight"):
                shapes.setdefault(int(name.split(".")[1]), []).append(tensor.shape)
        hidden = [[shape[0] for shape in shapes[level][:-1]] for level in sorted(shapes)]
        network = cls(len(state["packed_scale"]), len(state["torque_scale"]), shapes[0][-1][0], hidden[0])
        for widths in hidden[1:]:
            network.add_level(widths)
        network.load_state_dict(state)
        return network

    @property
    def n_packed(self) -> int:
        return len(self.packed_scale)

    @property
    def n_coords(self) -> int:
        return len(self.torque_scale)

    def add_level(self, hidden: Sequence[int] = DEFAULT_HIDDEN, seed: int = 0) -> None:
        """
        Freeze what is there and put a new level on top, which adds nothing until it has learned.

        :param hidden: widths of its hidden layers
        :param seed: of its initial weights
        """
        self.requires_grad_(False)
        generator = th.Generator().manual_seed(seed)
        n_inputs = self.n_packed + self.n_coords + (self.n_muscles + 1 if len(self.levels) else 0)
        sizes = [n_inputs, *hidden, self.n_muscles]
        layers: list[nn.Module] = []
        for number, (n_in, n_out) in enumerate(pairwise(sizes)):
            # nn.Linear's own initial weights would draw from torch's global generator.
            linear = nn.utils.skip_init(nn.Linear, n_in, n_out)
            if len(self.levels) and number == len(hidden):
                nn.init.zeros_(linear.weight)
            else:
                nn.init.xavier_uniform_(linear.weight, generator=generator)
            nn.init.zeros_(linear.bias)
            layers += [nn.LeakyReLU(SLOPE), linear] if number else [linear]
        self.levels.append(nn.Sequential(*layers).to(self.packed_scale.device))

    def forward(self, packed: th.Tensor, desired_torque: th.Tensor, weight: th.Tensor | None = None) -> th.Tensor:
        """
        :param packed: ``[B, P]`` float32
        :param desired_torque: ``[B, D]`` float32, Nm
        :param weight: ``[B]``, of the newest level; those between it and the first count in full. By default one
        :return: pre-activations ``[B, M]``
        """
        inputs = th.cat((packed / self.packed_scale, desired_torque / self.torque_scale), dim=1)
        total = self.levels[0](inputs)
        full = inputs.new_ones(len(inputs), 1)
        for number, level in enumerate(self.levels[1:], start=2):
            share = full if weight is None or number < len(self.levels) else weight.reshape(-1, 1)
            total = total + share * level(th.cat((0.5 * total, share, inputs), dim=1))
        return total

    def to_muscles(self) -> Muscles:
        """
        :return: a copy of the network as it is now, for the environments
        """

        def array(tensor: th.Tensor) -> np.ndarray:
            return np.ascontiguousarray(tensor.detach().cpu().numpy().copy())

        levels = tuple(
            tuple((array(module.weight.T), array(module.bias)) for module in level if isinstance(module, nn.Linear))
            for level in self.levels
            if isinstance(level, nn.Sequential)
        )
        return Muscles("network", levels, array(self.packed_scale), array(self.torque_scale))
