"""
The functions that tasks are made of, readable: ``native/src/terms.cpp`` has the fast twin of each, under the same name, and
the same numbers to the last bit. ``docs/tasks.md`` says what they do.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import mujoco
import numpy as np

from sb3_hrl.muscle import ControlSummary, MuscleControl
from sb3_hrl.philox import RandomStream


class Moment(NamedTuple):
    """
    What a term's function sees.

    :param model: MuJoCo's model
    :param data: MuJoCo's data
    :param dt: simulated seconds of one step
    :param action: float32; None at a reset
    :param values: the task's values so far
    :param before: the values as they were before the first substep
    :param control: the muscles' controller, None without muscles
    """

    model: Any
    data: Any
    dt: float
    action: np.ndarray | None = None
    values: Sequence[float] = ()
    before: Mapping[int, float] = {}
    control: MuscleControl | None = None


class Arguments:
    """
    The arguments of a term, by type.

    :param numbers: name -> numbers, as the loader resolved them
    """

    def __init__(self, numbers: Mapping[str, list[float]]) -> None:
        self.numbers = numbers

    def __contains__(self, name: str) -> bool:
        return name in self.numbers

    def number(self, name: str) -> float:
        """One number."""
        return float(self.numbers[name][0])

    def index(self, name: str) -> int:
        """One whole number."""
        return int(self.numbers[name][0])

    def indices(self, name: str) -> list[int]:
        """Whole numbers."""
        return [int(number) for number in self.numbers[name]]

    def flag(self, name: str) -> bool:
        """Whether a flag is there and set."""
        return name in self.numbers and self.numbers[name][0] != 0

    def pair(self, name: str, otherwise: tuple[float, float] = (-np.inf, np.inf)) -> tuple[float, float]:
        """Two numbers."""
        low, high = self.numbers.get(name, otherwise)
        return low, high

    def rows(self) -> slice:
        """From ``start`` to ``stop``."""
        return slice(*(self.index(name) if name in self else None for name in ("start", "stop")))


ArrayFunction = Callable[[Arguments, Moment], np.ndarray]
ValueFunction = Callable[[Arguments, Moment], float]
ResetFunction = Callable[[Arguments, Moment, RandomStream], None]
ARRAYS: dict[str, ArrayFunction] = {}
VALUES: dict[str, ValueFunction] = {}
RESETS: dict[str, ResetFunction] = {}
# Values that only a step has: neither a reset's info nor a rate may use them.
STEP_ONLY = {"action_squares", "average", "rate", "streak", *ControlSummary._fields}


def array(function: ArrayFunction) -> ArrayFunction:
    """Enter an array term by its name."""
    ARRAYS[function.__name__.strip("_")] = function
    return function


def value(function: ValueFunction) -> ValueFunction:
    """Enter a value term by its name."""
    VALUES[function.__name__.strip("_")] = function
    return function


def reset(function: ResetFunction) -> ResetFunction:
    """Enter a reset term by its name."""
    RESETS[function.__name__.strip("_")] = function
    return function


# --- array terms ----------------------------------------------------------------------------------------------------------


def field_rows(name: str, a: Arguments, now: Moment) -> np.ndarray:
    """Rows of a field of mjData, times ``scale``, clipped."""
    rows = np.array(getattr(now.data, name)[a.rows()]).ravel()
    if "scale" in a:
        rows = a.number("scale") * rows
    return np.clip(rows, *a.pair("clip")) if "clip" in a else rows


@array
def qpos_cos(a: Arguments, now: Moment) -> np.ndarray:
    return np.array([math.cos(angle) for angle in now.data.qpos[a.rows()]])


@array
def qpos_sin(a: Arguments, now: Moment) -> np.ndarray:
    return np.array([math.sin(angle) for angle in now.data.qpos[a.rows()]])


@array
def body_xpos(a: Arguments, now: Moment) -> np.ndarray:
    return np.array(now.data.xpos[a.index("body")])


@array
def body_offset(a: Arguments, now: Moment) -> np.ndarray:
    offset = now.data.xpos[a.index("body")] - now.data.xpos[a.index("from")]
    return np.array(offset[: a.index("stop") if "stop" in a else 3])


@array
def clock(a: Arguments, now: Moment) -> np.ndarray:
    phase = 6.283185307179586 / a.number("period") * now.data.time
    return np.array([math.sin(phase), math.cos(phase)])


@array
def memory_(a: Arguments, now: Moment) -> np.ndarray:
    return np.array([now.data.userdata[a.index("of")]])


@array
def torque_low(a: Arguments, now: Moment) -> np.ndarray:
    return _muscle_state("torque_low", a, now)


@array
def torque_high(a: Arguments, now: Moment) -> np.ndarray:
    return _muscle_state("torque_high", a, now)


@array
def passive_torque(a: Arguments, now: Moment) -> np.ndarray:
    return _muscle_state("passive_torque", a, now)


def _muscle_state(name: str, a: Arguments, now: Moment) -> np.ndarray:
    assert now.control is not None
    torques: np.ndarray = getattr(now.control.state, name)
    return (a.number("scale") if "scale" in a else 1.0) * torques


# --- value terms: what the simulation is like -----------------------------------------------------------------------------


@value
def qpos(a: Arguments, now: Moment) -> float:
    return float(now.data.qpos[a.index("index")])


@value
def qvel(a: Arguments, now: Moment) -> float:
    return float(now.data.qvel[a.index("index")])


@value
def qpos_change(a: Arguments, now: Moment) -> float:
    return float(now.data.qpos[a.index("index")] - now.model.qpos0[a.index("index")])


@value
def qpos_norm(a: Arguments, now: Moment) -> float:
    return float(np.linalg.norm(now.data.qpos[a.rows()], ord=2))


@value
def xpos(a: Arguments, now: Moment) -> float:
    return float(now.data.xpos[a.index("body"), a.index("axis")])


@value
def site_xpos(a: Arguments, now: Moment) -> float:
    return float(now.data.site_xpos[a.index("site"), a.index("axis")])


@value
def mass_center(a: Arguments, now: Moment) -> float:
    center = np.einsum("b,bj->j", now.model.body_mass, now.data.xipos) / now.model.body_mass.sum()
    return float(center[a.index("axis")])


@value
def body_distance(a: Arguments, now: Moment) -> float:
    return float(np.linalg.norm(now.data.xpos[a.index("body")] - now.data.xpos[a.index("from")]))


@value
def action_squares(a: Arguments, now: Moment) -> float:
    assert now.action is not None
    return float(np.sum(np.square(now.action)))


@value
def ctrl_squares(a: Arguments, now: Moment) -> float:
    return float(np.sum(np.square(np.clip(now.data.ctrl, *a.pair("clip")))))


@value
def qvel_squares(a: Arguments, now: Moment) -> float:
    return float(np.sum(np.square(np.clip(now.data.qvel, *a.pair("clip")))))


@value
def cfrc_ext_squares(a: Arguments, now: Moment) -> float:
    return float(np.sum(np.square(np.clip(now.data.cfrc_ext, *a.pair("clip")))))


@value
def state_is_finite(a: Arguments, now: Moment) -> float:
    return float(np.isfinite(now.data.qpos).all() and np.isfinite(now.data.qvel).all())


@value
def state_within(a: Arguments, now: Moment) -> float:
    low, high = a.pair("range")
    state = np.concatenate([now.data.qpos, now.data.qvel])[a.index("start") if "start" in a else 0 :]
    return float(((low < state) & (state < high)).all())


@value
def limit_violation(a: Arguments, now: Moment) -> float:
    total = 0.0
    for joint in _limited_joints(now.model):
        position = float(now.data.qpos[now.model.jnt_qposadr[joint]])
        low, high = now.model.jnt_range[joint].tolist()
        total += max(0.0, low - position, position - high)
    return total


@value
def memory(a: Arguments, now: Moment) -> float:
    return float(now.data.userdata[a.index("of")])


def summary_number(name: str) -> ValueFunction:
    """A term that reads one number of the muscles' summary."""

    def read(a: Arguments, now: Moment) -> float:
        assert now.control is not None
        return float(getattr(now.control.summary, name))

    return read


VALUES |= {name: summary_number(name) for name in ControlSummary._fields}


# --- value terms: made of earlier values ----------------------------------------------------------------------------------


@value
def constant(a: Arguments, now: Moment) -> float:
    return a.number("number")


@value
def rate(a: Arguments, now: Moment) -> float:
    return (now.values[a.index("of")] - now.before[a.index("of")]) / now.dt


@value
def per_timestep(a: Arguments, now: Moment) -> float:
    return now.values[a.index("of")] / float(now.model.opt.timestep)


@value
def weighted(a: Arguments, now: Moment) -> float:
    weight, number = a.number("weight"), now.values[a.index("of")]
    return float(np.float32(weight) * np.float32(number)) if a.flag("is_single") else weight * number


@value
def cost(a: Arguments, now: Moment) -> float:
    return -float(np.clip(weighted(a, now), *a.pair("clip")))


@value
def squares_cost(a: Arguments, now: Moment) -> float:
    of = a.indices("of")
    weights, targets = a.numbers["weights"], a.numbers.get("targets", [0.0] * len(of))
    squares = [weight * math.pow(now.values[i] - target, 2.0) for i, weight, target in zip(of, weights, targets, strict=True)]
    return -_left_to_right(squares)


@value
def sum_(a: Arguments, now: Moment) -> float:
    return _left_to_right([now.values[i] for i in a.indices("of")])


@value
def difference(a: Arguments, now: Moment) -> float:
    return now.values[a.index("of")] - now.values[a.index("minus")]


@value
def bell(a: Arguments, now: Moment) -> float:
    number = now.values[a.index("of")]
    return a.number("weight") * math.exp(-a.number("sharpness") * (number * number))


@value
def average(a: Arguments, now: Moment) -> float:
    mean = float(now.data.userdata[a.index("memory")])
    mean += now.dt / a.number("seconds") * (now.values[a.index("of")] - mean)
    now.data.userdata[a.index("memory")] = mean
    return mean


@value
def streak(a: Arguments, now: Moment) -> float:
    n_steps = float(now.data.userdata[a.index("memory")]) + 1.0 if now.values[a.index("of")] != 0.0 else 0.0
    now.data.userdata[a.index("memory")] = n_steps
    return n_steps


@value
def first_zero(a: Arguments, now: Moment) -> float:
    zeros = [position for position, i in enumerate(a.indices("of"), start=1) if now.values[i] == 0.0]
    return float(zeros[0]) if zeros else 0.0


@value
def within(a: Arguments, now: Moment) -> float:
    (low, high), number = a.pair("range"), now.values[a.index("of")]
    return float(low <= number <= high if a.flag("closed") else low < number < high)


@value
def above(a: Arguments, now: Moment) -> float:
    return float(now.values[a.index("of")] > a.number("limit"))


@value
def all_(a: Arguments, now: Moment) -> float:
    return float(all(now.values[i] != 0.0 for i in a.indices("of")))


# --- reset terms ----------------------------------------------------------------------------------------------------------


@reset
def qpos_uniform(a: Arguments, now: Moment, random: RandomStream) -> None:
    _add_uniform(now.data.qpos, a, random)


@reset
def qvel_uniform(a: Arguments, now: Moment, random: RandomStream) -> None:
    _add_uniform(now.data.qvel, a, random)


@reset
def qvel_normal(a: Arguments, now: Moment, random: RandomStream) -> None:
    for i in range(now.model.nv):
        now.data.qvel[i] += a.number("scale") * random.normal()


@reset
def qpos_pair(a: Arguments, now: Moment, random: RandomStream) -> None:
    start = range(now.model.nq)[a.index("start")]
    inner, outer = a.pair("radius")
    for _ in range(10000):
        point = [random.uniform(*a.pair("first")), random.uniform(*a.pair("second"))]
        if inner < math.sqrt(point[0] * point[0] + point[1] * point[1]) < outer:
            now.data.qpos[start : start + 2] = point
            return
    raise RuntimeError("qpos_pair: no point of the rectangle was found to lie within the radius")


@reset
def qpos_set(a: Arguments, now: Moment, random: RandomStream) -> None:
    now.data.qpos[a.rows()] = a.number("number")


@reset
def qvel_set(a: Arguments, now: Moment, random: RandomStream) -> None:
    now.data.qvel[a.rows()] = a.number("number")


@reset
def keyframe(a: Arguments, now: Moment, random: RandomStream) -> None:
    keys = a.indices("of")
    key = keys[int(random.uniform(0.0, len(keys)))]
    now.data.qpos[:], now.data.qvel[:] = now.model.key_qpos[key], now.model.key_qvel[key]
    now.data.time = now.model.key_time[key]


@reset
def mocap_to_pose(a: Arguments, now: Moment, random: RandomStream) -> None:
    qpos = now.data.qpos.copy()
    for joint in _limited_joints(now.model):
        low, high = now.model.jnt_range[joint].tolist()
        part = random.uniform(*a.pair("part", (0.0, 1.0)))
        now.data.qpos[now.model.jnt_qposadr[joint]] = low + (high - low) * part
    mujoco.mj_kinematics(now.model, now.data)
    now.data.mocap_pos[now.model.body_mocapid[a.index("body")]] = now.data.xpos[a.index("to")]
    now.data.qpos[:] = qpos


@reset
def memory_uniform(a: Arguments, now: Moment, random: RandomStream) -> None:
    now.data.userdata[a.indices("of")] = random.uniform(*a.pair("range"))


def _add_uniform(numbers: np.ndarray, a: Arguments, random: RandomStream) -> None:
    scale = a.number("scale")
    for i in range(len(numbers))[a.rows()]:
        numbers[i] += random.uniform(-scale, scale)


def _limited_joints(model: Any) -> list[int]:
    """Hinge and slide joints that have a range."""
    kinds = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
    return [joint for joint in range(model.njnt) if model.jnt_limited[joint] and model.jnt_type[joint] in kinds]


def _left_to_right(numbers: Sequence[float]) -> float:
    """Python's own ``sum`` compensates for rounding since version 3.12."""
    total = numbers[0]
    for number in numbers[1:]:
        total += number
    return total
