"""
The muscles of a MuJoCo model, as torques at its joints: ``native/include/sb3_hrl/muscle_interface.hpp`` is the fast twin of
``read``.

A muscle pulls with ``gain(length, velocity) * activation + bias(length)``, and its moment arms turn the force into torques.
So the joint torques of all muscles are ``torque_per_activation @ activation + passive_torque``, exactly: the first is what a
low level inverts. Where MuJoCo adds something of its own, that identity breaks, and the model is refused.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import mujoco
import numpy as np

from sb3_hrl.registry import suggest

# Moment arms below this, in m, are rounding: the pattern leaves them out.
_SMALLEST_ARM = 1e-7
# The largest relative error at which the identity counts as kept.
_TOLERANCE = 1e-9
# MyoSim's muscles have controls from 0.001 on.
_LARGEST_FLOOR = 0.01
_N_POSES = 64
_SINGLE_DOF = (int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE))
_BIASES = (int(mujoco.mjtBias.mjBIAS_MUSCLE), int(mujoco.mjtBias.mjBIAS_NONE))


class MuscleState(NamedTuple):
    """
    What the muscles can do in one pose.

    :param torque_per_activation: ``[D, M]`` float64, Nm: the torque of each muscle at activation one (JtA)
    :param packed: ``[P]`` float64: its entries that are not structurally zero, muscle by muscle
    :param passive_torque: ``[D]`` float64, Nm: what the muscles do without activation (JtP)
    :param torque_low: ``[D]`` float64, Nm: the least that activations in [0, 1] can add at each coordinate
    :param torque_high: ``[D]`` float64, Nm: the most
    """

    torque_per_activation: np.ndarray
    packed: np.ndarray
    passive_torque: np.ndarray
    torque_low: np.ndarray
    torque_high: np.ndarray


class Coupling(NamedTuple):
    """
    A joint that an equality constraint ties to another: ``q - q0 = sum(c_k * (other - other0)**k)``.

    :param joint: the dependent joint's id
    :param other: the joint that it follows, -1 for none
    :param coefficients: ``c_0 ... c_4``
    """

    joint: int
    other: int
    coefficients: tuple[float, ...]

    def offset(self, x: float) -> float:
        """
        :param x: how far the other joint is from its reference
        :return: how far this one is
        """
        c = self.coefficients
        return c[0] + x * (c[1] + x * (c[2] + x * (c[3] + x * c[4])))

    def slope(self, x: float) -> float:
        """
        :param x: how far the other joint is from its reference
        :return: the derivative of ``offset``
        """
        c = self.coefficients
        return ((4.0 * c[4] * x + 3.0 * c[3]) * x + 2.0 * c[2]) * x + c[1]


class MuscleInterface:
    """
    The muscles of a model and the coordinates that they drive.

    Muscles are the actuators with MuJoCo's muscle gain, whatever tag wrote them. Coordinates are hinge and slide joints; one
    that a joint equality ties to another is no coordinate of its own: its torque counts where it follows
    (``T.T @ torque`` with ``T = dq / dq_independent``).

    :param model: the model
    :param joints: names of the driven joints, in the order that all arrays have; by default all that a muscle spans
    :ivar n_muscles: ``M``
    :ivar n_coords: ``D``, driven coordinates
    :ivar n_packed: ``P``, entries of ``[D, M]`` that are not structurally zero
    :ivar pattern: their positions in it ``[P]``, muscle by muscle
    :ivar muscle_ids: actuator of each muscle; alike ``muscle_names``, ``controls`` (in ``ctrl``), ``activations`` (in ``act``)
    :ivar dofs: degree of freedom of each coordinate; alike ``joint_ids``, ``joint_names``, ``positions`` (in ``qpos``)
    :ivar joint_low: the joints' ranges ``[D]``, infinite for joints without one; ``joint_high`` alike
    :ivar arm_low: the smallest moment arms ``[D, M]`` in the poses sampled, m; ``arm_high`` the largest
    :ivar reach_low: the lowest torque bounds ``[D]`` in the poses sampled, Nm; ``reach_high`` the highest
    :ivar couplings: the joints that follow others
    :ivar identity_error: the largest difference from MuJoCo's own torques, Nm
    :raises ValueError: if the model has no muscles, a joint cannot be driven, or the torques are not what the muscles make
    """

    def __init__(self, model: Any, joints: Sequence[str] | None = None) -> None:
        self.model = model
        self.muscle_ids = np.flatnonzero(model.actuator_gaintype == mujoco.mjtGain.mjGAIN_MUSCLE)
        self.n_muscles = len(self.muscle_ids)
        if self.n_muscles == 0:
            kinds = f"its {model.nactuator} actuators are of other kinds" if model.nactuator else "it has no actuators"
            raise ValueError(f"the model has no muscles: {kinds}; expected actuators with the gain type muscle")
        self.muscle_names = tuple(
            _name(model, mujoco.mjtObj.mjOBJ_ACTUATOR, index, "muscle") for index in self.muscle_ids.tolist()
        )
        _check_muscles(model, self.muscle_ids, self.muscle_names)
        self._outputs = model.actuator_outadr[self.muscle_ids].copy()
        self.controls = model.actuator_ctrladr[self.muscle_ids].copy()
        self.activations = model.actuator_actadr[self.muscle_ids].copy()
        self._has_bias = model.actuator_biastype[self.muscle_ids] == mujoco.mjtBias.mjBIAS_MUSCLE

        self.couplings = _couplings(model)
        # For every degree of freedom the independent one that it follows: itself, another's, or -1 for none.
        self.followed = np.arange(model.nv)
        for coupling in self.couplings:
            dof = model.jnt_dofadr[coupling.joint]
            self.followed[dof] = self.followed[model.jnt_dofadr[coupling.other]] if coupling.other >= 0 else -1
        self.independent = np.flatnonzero(self.followed == np.arange(model.nv))

        arms_low, arms_high = self._sample_arms()
        self._choose(joints, np.maximum(-arms_low, arms_high) > _SMALLEST_ARM)
        self.arm_low, self.arm_high = arms_low[self.dofs], arms_high[self.dofs]
        spans = np.maximum(-self.arm_low, self.arm_high) > _SMALLEST_ARM
        # Muscle by muscle, and by coordinate within one.
        self.pattern = np.array([d * self.n_muscles + i for i in range(self.n_muscles) for d in np.flatnonzero(spans[:, i])])
        self.n_packed = len(self.pattern)
        self._entries: list[list[int]] = [[] for _ in range(self.n_muscles)]
        for index in self.pattern.tolist():
            self._entries[index % self.n_muscles].append(index // self.n_muscles)
        self.reach_low, self.reach_high = np.zeros((2, self.n_coords))
        self.identity_error = self._check_identity()

    @property
    def body(self) -> str:
        """A digest of which joints and muscles there are, and which muscle moves which joint."""
        content = repr((self.joint_names, self.muscle_names, self.pattern.tolist()))
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()

    # --- which coordinates ----------------------------------------------------------------------------------------------

    def _choose(self, joints: Sequence[str] | None, spans: np.ndarray) -> None:
        """Set the driven coordinates. ``spans`` is [nv, M]."""
        model = self.model
        single = [joint for joint in range(model.njnt) if model.jnt_type[joint] in _SINGLE_DOF]
        names = {_name(model, mujoco.mjtObj.mjOBJ_JOINT, joint, "joint"): joint for joint in single}
        if not joints:
            chosen = [joint for joint in single if spans[model.jnt_dofadr[joint]].any()]
        else:
            chosen = [self._checked_joint(name, names, spans) for name in joints]
        if len(set(chosen)) != len(chosen):
            raise ValueError(f"joints: expected each joint once, got {list(joints or [])}")
        if not chosen:
            raise ValueError("the model's muscles span no hinge or slide joint, so they drive nothing")
        self.joint_ids = np.array(chosen)
        self.joint_names = tuple(_name(model, mujoco.mjtObj.mjOBJ_JOINT, joint, "joint") for joint in chosen)
        self.n_coords = len(chosen)
        self.dofs = model.jnt_dofadr[self.joint_ids].copy()
        self.positions = model.jnt_qposadr[self.joint_ids].copy()
        is_limited = model.jnt_limited[self.joint_ids].astype(bool)
        self.joint_low = np.where(is_limited, model.jnt_range[self.joint_ids, 0], -np.inf)
        self.joint_high = np.where(is_limited, model.jnt_range[self.joint_ids, 1], np.inf)
        self.nominal = np.clip(model.qpos0[self.positions], self.joint_low, self.joint_high)
        self._coordinate = np.full(model.nv, -1)
        for d, dof in enumerate(self.dofs):
            self._coordinate[self.followed == dof] = d

    def _checked_joint(self, name: str, names: dict[str, int], spans: np.ndarray) -> int:
        model = self.model
        if name not in names:
            joint = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT, name)
            if joint >= 0:
                raise ValueError(f"joints: expected hinge and slide joints, got {name!r}, which has more than one coordinate")
            raise ValueError(
                f"joints: the model has no joint {name!r}{suggest(name, names) or '.'} It has: {', '.join(names)}"
            )
        dof = model.jnt_dofadr[names[name]]
        if self.followed[dof] != dof:
            followed = self.followed[dof]
            other = next((key for key, joint in names.items() if model.jnt_dofadr[joint] == followed), None)
            remedy = f"it follows {other!r}: name that one" if other else "it is held in place"
            raise ValueError(f"joints: {name!r} is no coordinate of its own, an equality couples it: {remedy}")
        if not spans[dof].any():
            raise ValueError(f"joints: expected joints that a muscle spans, got {name!r}, which none does")
        return names[name]

    # --- poses ----------------------------------------------------------------------------------------------------------

    def random_state(self, data: Any, rng: np.random.Generator, speed: float = 0.0) -> None:
        """
        Put the body into a random pose within its joint ranges, coupled joints where they belong, with random activations.
        Ball and free joints stay where the model has them.

        :param data: is changed: positions, velocities, activations, controls; nothing is computed from them
        :param rng: the random numbers
        :param speed: standard deviation of the velocities, rad/s or m/s
        """
        model = self.model
        mujoco.mj_resetData(model, data)
        for joint in range(model.njnt):
            if model.jnt_type[joint] in _SINGLE_DOF:
                at = model.jnt_qposadr[joint]
                low, high = model.jnt_range[joint] if model.jnt_limited[joint] else model.qpos0[at] + np.array([-1.0, 1.0])
                data.qpos[at] = rng.uniform(low, high)
        data.qvel[:] = speed * rng.standard_normal(model.nv)
        self.couple(data)
        data.act[self.activations] = rng.uniform(size=self.n_muscles)
        data.ctrl[self.controls] = rng.uniform(size=self.n_muscles)  # another, or a force of the next activation would hide

    def couple(self, data: Any) -> None:
        """
        Move every coupled joint to where its equality wants it, with the velocity that belongs to it.

        :param data: its ``qpos`` and ``qvel`` are changed
        """
        model = self.model
        for coupling in self.couplings:
            at, dof, x, velocity = model.jnt_qposadr[coupling.joint], model.jnt_dofadr[coupling.joint], 0.0, 0.0
            if coupling.other >= 0:
                other = model.jnt_qposadr[coupling.other]
                x = data.qpos[other] - model.qpos0[other]
                velocity = data.qvel[model.jnt_dofadr[coupling.other]]
            data.qpos[at] = model.qpos0[at] + coupling.offset(x)
            data.qvel[dof] = coupling.slope(x) * velocity if coupling.other >= 0 else 0.0

    def slopes(self, data: Any) -> list[float]:
        """
        :param data: the pose
        :return: for every degree of freedom its derivative by the one that it follows: the non-zero entries of ``T``
        """
        model = self.model
        slopes = [1.0] * model.nv
        for coupling in self.couplings:
            dof, slope = model.jnt_dofadr[coupling.joint], 0.0
            if coupling.other >= 0:
                other = model.jnt_qposadr[coupling.other]
                slope = coupling.slope(float(data.qpos[other] - model.qpos0[other]))
                slope = slope * slopes[model.jnt_dofadr[coupling.other]]
            slopes[dof] = slope
        return slopes

    def _sample_arms(self) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and the largest moment arm [nv, M] in random poses, zero for coupled degrees of freedom."""
        data, rng = mujoco.MjData(self.model), np.random.default_rng(0)
        low, high = np.zeros((2, self.model.nv, self.n_muscles))
        for pose in range(_N_POSES):
            self.random_state(data, rng)
            mujoco.mj_fwdPosition(self.model, data)
            arms = np.zeros((self.model.nv, self.n_muscles))
            slopes = self.slopes(data)
            for i in range(self.n_muscles):
                for dof, moment in self._moments(data, i):
                    if self.followed[dof] >= 0:
                        arms[self.followed[dof], i] += moment * slopes[dof]
            low = arms if pose == 0 else np.minimum(low, arms)
            high = arms if pose == 0 else np.maximum(high, arms)
        return low, high

    def _moments(self, data: Any, muscle: int) -> list[tuple[int, float]]:
        """Degrees of freedom and moment arms of a muscle."""
        output = self._outputs[muscle]
        at = slice(data.moment_rowadr[output], data.moment_rowadr[output] + data.moment_rownnz[output])
        return list(zip(data.moment_colind[at].tolist(), data.actuator_moment[at].tolist(), strict=True))

    # --- the numbers ----------------------------------------------------------------------------------------------------

    def forces(self, data: Any) -> tuple[list[float], list[float]]:
        """
        :param data: after ``mj_step1`` or ``mj_forward``
        :return: gain and bias of each muscle, N: its force is ``gain * activation + bias``; both are negative, for a pull
        """
        model = self.model
        gains, biases = [], []
        for i, (muscle, output) in enumerate(zip(self.muscle_ids, self._outputs, strict=True)):
            length, velocity = data.actuator_length[output], data.actuator_velocity[output]
            length_range, acc0 = model.actuator_lengthrange[output], model.actuator_acc0[output]
            gains.append(mujoco.mju_muscleGain(length, velocity, length_range, acc0, model.actuator_gainprm[muscle, :9]))
            has_bias = self._has_bias[i]
            bias = mujoco.mju_muscleBias(length, length_range, acc0, model.actuator_biasprm[muscle, :9]) if has_bias else 0.0
            biases.append(bias)
        return gains, biases

    def read(self, data: Any) -> MuscleState:
        """
        :param data: after ``mj_step1`` or ``mj_forward``: positions, velocities and what depends on them
        :return: what the muscles can do there, in fresh arrays
        """
        n_coords, n_muscles = self.n_coords, self.n_muscles
        gains, biases = self.forces(data)
        slopes = self.slopes(data)
        torques = np.zeros((n_coords, n_muscles))
        packed = np.empty(self.n_packed)
        passive, low, high = [0.0] * n_coords, [0.0] * n_coords, [0.0] * n_coords
        position = 0
        for i in range(n_muscles):
            arms = [0.0] * n_coords
            for dof, moment in self._moments(data, i):
                d = self._coordinate[dof]
                if d >= 0:
                    arms[d] += moment * slopes[dof]
            for d in self._entries[i]:
                torque = arms[d] * gains[i]
                torques[d, i] = packed[position] = torque
                position += 1
                passive[d] += arms[d] * biases[i]
                low[d] += min(torque, 0.0)
                high[d] += max(torque, 0.0)
        return MuscleState(torques, packed, np.array(passive), np.array(low), np.array(high))

    def unpack(self, packed: Any) -> Any:
        """
        :param packed: ``[..., P]``, a NumPy array or a torch tensor
        :return: ``torque_per_activation``, ``[..., D, M]``, of the same kind and type; gradients pass
        """
        shape = (*packed.shape[:-1], self.n_coords * self.n_muscles)
        full = np.zeros(shape, packed.dtype) if isinstance(packed, np.ndarray) else packed.new_zeros(shape)
        full[..., self.pattern] = packed
        return full.reshape(*packed.shape[:-1], self.n_coords, self.n_muscles)

    # --- the check ------------------------------------------------------------------------------------------------------

    @property
    def torque_reach(self) -> np.ndarray:
        """The largest torque that the muscles reached at each coordinate in the poses sampled, ``[D]``, Nm."""
        return np.maximum(-self.reach_low, self.reach_high)

    def _check_identity(self) -> float:
        """Compare with MuJoCo's own torques, and note the largest torque bounds at rest. Returns the largest error, Nm."""
        model = self.model
        data, rng = mujoco.MjData(model), np.random.default_rng(1)
        worst = 0.0
        for _ in range(_N_POSES):
            self.random_state(data, rng)
            mujoco.mj_forward(model, data)
            state = self.read(data)
            self.reach_low = np.minimum(self.reach_low, state.torque_low)
            self.reach_high = np.maximum(self.reach_high, state.torque_high)
            self.random_state(data, rng, speed=1.0)
            mujoco.mj_forward(model, data)
            error, scale = self._identity_error(data)
            worst = max(worst, error)
            if not error <= _TOLERANCE * max(scale, 1.0):
                raise ValueError(
                    "the muscles' torques are not gain * activation + bias times the moment arms: MuJoCo's differ by "
                    f"{error:.3g} Nm, of {scale:.3g} Nm"
                )
        return worst

    def _identity_error(self, data: Any) -> tuple[float, float]:
        model, state = self.model, self.read(data)
        slopes = self.slopes(data)
        # What other actuators do is not the muscles'; MuJoCo only has the sum.
        rest = data.qfrc_actuator.copy()
        outputs = set(self._outputs.tolist())
        for output in range(model.nout):
            if output not in outputs:
                at = slice(data.moment_rowadr[output], data.moment_rowadr[output] + data.moment_rownnz[output])
                rest[data.moment_colind[at]] -= data.actuator_moment[at] * data.actuator_force[output]
        torques = np.zeros(self.n_coords)
        for dof in range(model.nv):
            if self._coordinate[dof] >= 0:
                torques[self._coordinate[dof]] += slopes[dof] * rest[dof]
        expected = state.torque_per_activation @ data.act[self.activations] + state.passive_torque
        return float(np.abs(torques - expected).max()), float(np.abs(expected).max())


def _name(model: Any, kind: Any, index: int, word: str) -> str:
    return mujoco.mj_id2name(model, kind, index) or f"{word} {index}"


def _check_muscles(model: Any, muscles: np.ndarray, names: tuple[str, ...]) -> None:
    """Refuse what would make the torques something else than gain, activation, bias and moment arm."""
    for muscle, name in zip(muscles.tolist(), names, strict=True):
        reason = _refusal(model, muscle)
        if reason:
            raise ValueError(f"the muscle {name!r} cannot be driven: {reason}")
    for joint in range(model.njnt):
        name = _name(model, mujoco.mjtObj.mjOBJ_JOINT, joint, "joint")
        if model.jnt_actfrclimited[joint]:
            raise ValueError(
                f"the joint {name!r} has an actuatorfrcrange, which clamps the muscles' torques: remove it, the muscles' own "
                "forces limit them"
            )
        if model.jnt_actgravcomp[joint]:
            raise ValueError(f"the joint {name!r} has actuatorgravcomp, which adds to the muscles' torques: remove it")
    if model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_ACTUATION:
        raise ValueError("the model's option flag `actuation` is disabled, so its muscles do nothing: enable it")


def _refusal(model: Any, muscle: int) -> str | None:
    if model.actuator_dyntype[muscle] != mujoco.mjtDyn.mjDYN_MUSCLE:
        return "expected the dynamics type muscle (dyntype), whose state is the activation"
    if model.actuator_biastype[muscle] not in _BIASES:
        return "expected the bias type muscle or none"
    if model.actuator_actearly[muscle]:
        return "its actearly makes the force use the next activation: set it to false"
    if model.actuator_forcelimited[muscle]:
        return "its forcerange clamps the force: remove it"
    if model.actuator_delay[muscle] > 0:
        return "its delay makes the force use an earlier activation: set it to zero"
    if model.actuator_plugin[muscle] >= 0:
        return "its force comes from a plug-in"
    if (1 << int(model.actuator_group[muscle])) & model.opt.disableactuator and model.actuator_group[muscle] < 31:
        return f"its group {model.actuator_group[muscle]} is disabled by the option disableactuator"
    control = model.actuator_ctrladr[muscle]
    for key, is_limited, (low, high) in (
        ("ctrlrange", model.actuator_ctrllimited[control], model.actuator_ctrlrange[control]),
        ("actrange", model.actuator_actlimited[muscle], model.actuator_actrange[muscle]),
    ):
        if is_limited and (low > _LARGEST_FLOOR or high < 1):
            return f"expected a {key} from 0 (at most {_LARGEST_FLOOR:g}) to 1, got [{low:g}, {high:g}]"
    tendon = model.actuator_trnid[muscle, 0]
    if model.actuator_trntype[muscle] == mujoco.mjtTrn.mjTRN_TENDON and model.tendon_actfrclimited[tendon]:
        return "its tendon has an actuatorfrcrange, which clamps the force: remove it"
    return None


def _couplings(model: Any) -> tuple[Coupling, ...]:
    """The joint equalities that are on from the start, each after the one that it follows."""
    if model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_EQUALITY:
        return ()
    found: dict[int, Coupling] = {}
    for equality in range(model.neq):
        if model.eq_type[equality] != mujoco.mjtEq.mjEQ_JOINT or not model.eq_active0[equality]:
            continue
        joint, other = int(model.eq_obj1id[equality]), int(model.eq_obj2id[equality])
        name = _name(model, mujoco.mjtObj.mjOBJ_JOINT, joint, "joint")
        if joint in found:
            raise ValueError(f"the joint {name!r} is coupled by two equalities; expected one")
        found[joint] = Coupling(joint, other, tuple(model.eq_data[equality, :5].tolist()))
    ordered: dict[int, Coupling] = {}
    while len(ordered) < len(found):
        ready = [c for c in found.values() if c.joint not in ordered and (c.other not in found or c.other in ordered)]
        if not ready:
            names = (_name(model, mujoco.mjtObj.mjOBJ_JOINT, joint, "joint") for joint in found if joint not in ordered)
            raise ValueError(f"these joints are coupled in a circle: {', '.join(names)}; one of them must be independent")
        ordered |= {coupling.joint: coupling for coupling in ready}
    return tuple(ordered.values())
