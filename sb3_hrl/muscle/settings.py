"""How a task drives its muscles."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sb3_hrl.registry import suggest

if TYPE_CHECKING:
    from sb3_hrl.muscle.interface import MuscleInterface

# What an action is: joint targets, activations, or joint torques. The order is the native core's numbering.
ACTUATIONS = ("muscle_hrl", "muscle_e2e", "torque")
# How an activation reaches the muscle. The order is the native core's numbering.
ACTIVATIONS = ("direct", "excitation", "inverted")
# A cascade's weight is the sigmoid of one more action, in this range: far enough for a weight of practically 0 and 1.
CASCADE_LIMIT = 10.0

Numbers = float | tuple[float, ...]


class MuscleSpec(NamedTuple):
    """
    ``MuscleSettings`` in numbers, with what the native core has to know of the model: the fields of
    ``_native.MuscleSettings``. It can be pickled.

    :param actuation: position in ``ACTUATIONS``
    :param activation: position in ``ACTIVATIONS``
    :param dofs: degree of freedom of each coordinate ``[D]``
    :param pattern: ``MuscleInterface.pattern``
    :param low: the lowest joint targets ``[D]``
    :param high: the highest ``[D]``
    :param nominal: ``[D]``, and so are those that follow
    :param scale: as in ``MuscleSettings``
    :param stiffness: as in ``MuscleSettings``
    :param damping: as in ``MuscleSettings``
    :param torque_limit: as in ``MuscleSettings``
    :param has_cascade: as in ``MuscleSettings``
    """

    actuation: int
    activation: int
    dofs: tuple[int, ...]
    pattern: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    nominal: tuple[float, ...]
    scale: tuple[float, ...]
    stiffness: tuple[float, ...]
    damping: tuple[float, ...]
    torque_limit: tuple[float, ...]
    has_cascade: bool


@dataclass(frozen=True)
class MuscleSettings:
    """
    How a task drives its muscles. A number that belongs to the ``D`` driven coordinates may be given once for all of them, or
    as ``D`` numbers in the order of ``joints``; ``resolve`` writes it out.

    :param actuation: what an action is. ``muscle_hrl``: joint targets in ``[-1, 1]``, which stable PD control and a low level
        turn into activations; ``muscle_e2e``: activations (or excitations) in ``[0, 1]``; ``torque``: joint torques in
        ``[-1, 1]``, as parts of ``torque_limit``
    :param activation: ``direct``: what is wanted is the activation; ``excitation``: it goes through the muscle's activation
        dynamics; ``inverted``: the excitation that reaches the wanted activation in one substep, as far as 0 and 1 allow
    :param joints: the driven hinge and slide joints; empty for all that a muscle spans
    :param nominal: joint positions that an action of zero stands for, rad or m; by default the model's own
    :param scale: how far an action of one moves the target from there, rad or m
    :param stiffness: of stable PD, Nm/rad or N/m
    :param damping: of stable PD, Nm s/rad or N s/m; by default ``sqrt(2 * stiffness)``
    :param torque_limit: torque that an action of one stands for, Nm or N; by default the most that the muscles were seen to
        reach in the poses that ``MuscleInterface`` samples
    :param has_cascade: whether the action has one more number, for the weight of a cascade's last level
    """

    actuation: str = "muscle_hrl"
    activation: str = "direct"
    joints: tuple[str, ...] = ()
    nominal: Numbers | None = None
    scale: Numbers = 0.5
    stiffness: Numbers = 100.0
    damping: Numbers | None = None
    torque_limit: Numbers | None = None
    has_cascade: bool = False

    def __post_init__(self) -> None:
        for key, known in (("actuation", ACTUATIONS), ("activation", ACTIVATIONS)):
            value = getattr(self, key)
            if value not in known:
                raise ValueError(f"{key}: expected {', '.join(known)}, got {value!r}{suggest(str(value), known)}")
        if isinstance(self.joints, str) or not all(isinstance(name, str) for name in self.joints):
            raise ValueError(f"joints: expected a list of names, got {self.joints!r}")
        object.__setattr__(self, "joints", tuple(self.joints))
        if not isinstance(self.has_cascade, bool):
            raise ValueError(f"has_cascade: expected true or false, got {self.has_cascade!r}")
        if self.has_cascade and self.actuation != "muscle_hrl":
            raise ValueError(f"has_cascade: only the actuation muscle_hrl has a low level to cascade, not {self.actuation}")
        for key, (is_optional, low) in _NUMBERS.items():
            value = getattr(self, key)
            if value is not None or not is_optional:
                object.__setattr__(self, key, _checked_numbers(key, value, low))

    def resolve(self, interface: "MuscleInterface") -> "MuscleSettings":
        """
        :param interface: the model's muscles
        :return: the same with ``joints`` named, and every number written out for each of them
        """
        if self.activation == "inverted":
            smoothness = interface.model.actuator_dynprm[interface.muscle_ids, 2]
            for name in (name for name, smooth in zip(interface.muscle_names, smoothness, strict=True) if smooth > 0):
                raise ValueError(
                    f"activation: 'inverted' is exact without tausmooth only, which the muscle {name!r} has: set it to zero, "
                    "or choose direct or excitation"
                )
        n = interface.n_coords
        written: dict[str, Any] = {}
        for key in _NUMBERS:
            value = getattr(self, key)
            if value is None:
                value = {
                    "nominal": lambda: tuple(interface.nominal.tolist()),
                    "damping": lambda: tuple(np.sqrt(2.0 * np.asarray(written["stiffness"])).tolist()),
                    "torque_limit": lambda: tuple(interface.torque_reach.tolist()),
                }[key]()
            if isinstance(value, tuple) and len(value) != n:
                joints = ", ".join(interface.joint_names)
                raise ValueError(f"{key}: expected one number, or {n} (for {joints}), got {len(value)}")
            written[key] = value if isinstance(value, tuple) else (value,) * n
        return replace(self, joints=interface.joint_names, **written)

    def action_bounds(self, interface: "MuscleInterface") -> tuple[np.ndarray, np.ndarray]:
        """
        :param interface: the model's muscles
        :return: the lowest and the highest action, ``[n_actions]`` float32
        """
        if self.actuation == "muscle_e2e":
            return np.zeros(interface.n_muscles, np.float32), np.ones(interface.n_muscles, np.float32)
        high = [1.0] * interface.n_coords + [CASCADE_LIMIT] * self.has_cascade
        return -np.array(high, np.float32), np.array(high, np.float32)

    def n_sample(self, interface: "MuscleInterface") -> int:
        """
        :param interface: the model's muscles
        :return: how many numbers a step leaves for the muscles' learner: ``P + D``, or none without a low level
        """
        return interface.n_packed + interface.n_coords if self.actuation == "muscle_hrl" else 0

    def in_numbers(self, interface: "MuscleInterface") -> "MuscleSpec":
        """
        :param interface: the model's muscles
        :return: the same in numbers
        """
        full = self.resolve(interface)
        numbers: dict[str, Any] = {key: getattr(full, key) for key in _NUMBERS}
        return MuscleSpec(
            actuation=ACTUATIONS.index(full.actuation),
            activation=ACTIVATIONS.index(full.activation),
            dofs=tuple(interface.dofs.tolist()),
            pattern=tuple(interface.pattern.tolist()),
            low=tuple(interface.joint_low.tolist()),
            high=tuple(interface.joint_high.tolist()),
            has_cascade=full.has_cascade,
            **numbers,
        )


# Key -> whether it may be left out, and the smallest value.
_NUMBERS = {
    "nominal": (True, -np.inf),
    "scale": (False, 0.0),
    "stiffness": (False, 0.0),
    "damping": (True, 0.0),
    "torque_limit": (True, 0.0),
}


def _checked_numbers(key: str, value: Any, low: float) -> Numbers:
    numbers = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    for number in numbers:
        is_number = isinstance(number, int | float | np.integer | np.floating) and not isinstance(number, bool)
        if not is_number or not np.isfinite(number) or number < low:
            wanted = "a finite number" if low == -np.inf else f"a finite number >= {low:g}"
            raise ValueError(f"{key}: expected {wanted}, or one for each joint, got {value!r}")
    written = tuple(float(number) for number in numbers)
    return written if isinstance(value, Iterable) else written[0]
