"""
What turns an action into muscle activations at every physics substep, readable. The native core's
``native/src/muscle_controller.cpp`` is the fast twin, and gives the same numbers to the last bit.
"""

import math
from typing import Any, NamedTuple, Protocol

import mujoco
import numpy as np

from sb3_hrl.errors import NativeError
from sb3_hrl.muscle.interface import MuscleInterface, MuscleState
from sb3_hrl.muscle.settings import CASCADE_LIMIT, MuscleSettings
from sb3_hrl.muscle.stable_pd import StablePd
from sb3_hrl.philox import RandomPurpose, RandomStream

NO_MUSCLES = (
    "this environment is driven by a model's muscles and has none: load the model with HPPO and let it act here, or call "
    "set_muscles"
)
# An activation above this counts as saturated.
_SATURATED = 0.99
# Opposing torques below this, Nm, are no co-contraction.
_NEGLIGIBLE = 1e-6


class LowLevel(Protocol):
    """
    What turns torques into activations.

    :param is_torque: whether the desired torque is applied itself, without muscles
    """

    is_torque: bool

    def activate(self, state: MuscleState, desired_torque: np.ndarray, weight: float) -> np.ndarray:
        """
        :param state: what the muscles can do
        :param desired_torque: ``[D]``, Nm: what activations must add to the passive torque
        :param weight: of a cascade's last level, in [0, 1]
        :return: activations ``[M]``, float64
        """


class ControlSummary(NamedTuple):
    """
    What happened in one step of the task, averaged over its substeps (and over muscles or coordinates).

    :param effort: mean squared activation; under the actuation ``torque`` the mean squared action
    :param mean_activation: mean activation
    :param torque_error: root mean square of the produced minus the desired active torque, Nm; zero without a low level
    :param saturation: share of activations above 0.99
    :param co_contraction: mean over the coordinates of ``2 min(up, down) / (up + down)``, where ``up`` and ``down`` are the
        torques of the muscles that pull in either direction: 0 for one side only, 1 for balance
    :param infeasible: share of substeps whose desired torque lies outside ``[torque_low, torque_high]`` somewhere
    """

    effort: float = 0.0
    mean_activation: float = 0.0
    torque_error: float = 0.0
    saturation: float = 0.0
    co_contraction: float = 0.0
    infeasible: float = 0.0


class MuscleControl:
    """
    The controller of one environment::

        control.reset(data)                            # after mj_forward
        control.begin_step(data, action)               # once a step of the task
        for substep in range(frame_skip):
            mujoco.mj_step1(model, data)
            control.before_substep(data, substep)
            mujoco.mj_step2(model, data)

    :param interface: the model's muscles
    :param settings: how they are driven
    :param frame_skip: substeps of one step
    :ivar state: what the muscles could do when they were last read
    :ivar summary: of the last step, complete after its last substep
    :ivar sample: ``[P + D]`` float32: ``packed`` and the desired torque of one randomly drawn substep; zeros before it came
    """

    def __init__(self, interface: MuscleInterface, settings: MuscleSettings, frame_skip: int) -> None:
        if interface.model.opt.integrator == mujoco.mjtIntegrator.mjINT_RK4:
            raise ValueError(
                "integrator: RK4 has no place for a controller between its stages: choose implicitfast, implicit or Euler"
            )
        self.interface = interface
        self.settings = settings.resolve(interface)
        self.frame_skip = frame_skip
        low, _ = settings.action_bounds(interface)
        self.n_actions = len(low)
        self.low_level: LowLevel | None = None
        self.summary = ControlSummary()
        self.sample = np.zeros(settings.n_sample(interface), np.float32)
        full = self.settings
        self._nominal, self._scale, self._torque_limit = map(np.array, (full.nominal, full.scale, full.torque_limit))
        self._pd = StablePd(interface, np.array(full.stiffness), np.array(full.damping))
        self._random = RandomStream(0, 0, RandomPurpose.substep)
        self._action = np.zeros(self.n_actions)
        self._target = np.zeros(interface.n_coords)
        self._weight = 1.0
        self._drawn = -1
        self._sums = [0.0] * 6
        model = interface.model
        self._time_constants = [tuple(model.actuator_dynprm[muscle, :2].tolist()) for muscle in interface.muscle_ids]
        n_coords, n_muscles = interface.n_coords, interface.n_muscles
        self.state = MuscleState(
            np.zeros((n_coords, n_muscles)), np.zeros(interface.n_packed), *(np.zeros(n_coords) for _ in range(3))
        )

    def seed(self, seed: int, index: int = 0) -> None:
        """
        :param seed: of the random substeps; the environment's own
        :param index: the environment's stream
        """
        self._random = RandomStream(seed, index, RandomPurpose.substep)

    def set_muscles(self, muscles: Any) -> None:
        """
        :param muscles: what turns torques into activations from now on: a low level, or a record that makes one by
            ``to_low_level()``; None for nothing, and then the environment refuses to step
        """
        has_recipe = hasattr(muscles, "to_low_level")
        self.low_level = muscles.to_low_level() if has_recipe else muscles

    def reset(self, data: Any) -> None:
        """
        :param data: the episode's first state, after ``mj_forward``
        """
        self.state = self.interface.read(data)
        self.summary = ControlSummary()

    def get_checkpoint(self) -> dict[str, Any]:
        """
        :return: all that decides how it goes on, beside MuJoCo's data and the muscles
        """
        state = {name: np.copy(numbers) for name, numbers in self.state._asdict().items()}
        return {"random": self._random.state, "summary": list(self.summary), "state": state}

    def set_checkpoint(self, state: dict[str, Any]) -> None:
        """
        :param state: what ``get_checkpoint`` gave
        """
        self._random = RandomStream.from_state(state["random"])
        self.summary = ControlSummary(*state["summary"])
        self.state = MuscleState(**state["state"])

    def begin_step(self, data: Any, action: np.ndarray) -> None:
        """
        An action begins. A substep is drawn, and its numbers go to ``sample``.

        :param data: the environment's
        :param action: ``[n_actions]`` float32
        """
        settings = self.settings
        if settings.actuation == "muscle_hrl" and self.low_level is None:
            raise NativeError(NO_MUSCLES)
        self._action = np.asarray(action, np.float32).astype(np.float64)
        self._sums = [0.0] * 6
        if settings.actuation != "muscle_hrl":
            return
        n_coords = self.interface.n_coords
        target = self._nominal + self._scale * self._action[:n_coords]
        self._target = np.minimum(np.maximum(target, self.interface.joint_low), self.interface.joint_high)
        if settings.has_cascade:
            self._weight = 1.0 / (1.0 + math.exp(-min(max(self._action[n_coords], -CASCADE_LIMIT), CASCADE_LIMIT)))
        self._drawn = min(int(self._random.uniform() * self.frame_skip), self.frame_skip - 1)
        self.sample[:] = 0.0

    def before_substep(self, data: Any, substep: int) -> None:
        """
        Write controls, activations and applied torques.

        :param data: after ``mj_step1``
        :param substep: which one of the step, from 0
        """
        interface, actuation = self.interface, self.settings.actuation
        self.state = state = interface.read(data)
        desired: np.ndarray | None = None
        if actuation == "muscle_hrl":
            assert self.low_level is not None
            desired = self._pd.torque(data, self._target) - state.passive_torque
            if substep == self._drawn:
                self.sample[: interface.n_packed] = state.packed
                self.sample[interface.n_packed :] = desired
            if self.low_level.is_torque:
                self._relax(data)
                data.qfrc_applied[interface.dofs] = desired
            else:
                wanted = self.low_level.activate(state, desired, self._weight)
                data.qfrc_applied[interface.dofs] = 0.0
                self._activate(data, wanted)
        elif actuation == "muscle_e2e":
            self._activate(data, np.minimum(np.maximum(self._action, 0.0), 1.0))
        else:
            self._relax(data)
            data.qfrc_applied[interface.dofs] = self._torque_limit * self._action
        self._count(data, desired)
        if substep == self.frame_skip - 1:
            self._summarise()

    def _relax(self, data: Any) -> None:
        data.act[self.interface.activations] = 0.0
        data.ctrl[self.interface.controls] = 0.0

    def _activate(self, data: Any, wanted: np.ndarray) -> None:
        interface, mode = self.interface, self.settings.activation
        if mode == "direct":
            data.act[interface.activations] = wanted
            data.ctrl[interface.controls] = wanted
        elif mode == "excitation":
            data.ctrl[interface.controls] = wanted
        else:
            h = interface.model.opt.timestep
            for i, (control, at) in enumerate(zip(interface.controls, interface.activations, strict=True)):
                now, rise, fall = float(data.act[at]), *self._time_constants[i]
                # MuJoCo's time constants depend on the activation, and on whether it grows (Millard et al. 2013).
                factor = 0.5 + 1.5 * min(max(now, 0.0), 1.0)
                constant = rise * factor if wanted[i] > now else fall / factor
                data.ctrl[control] = min(max(now + constant * (float(wanted[i]) - now) / h, 0.0), 1.0)

    # --- what terms see -------------------------------------------------------------------------------------------------

    def _count(self, data: Any, desired: np.ndarray | None) -> None:
        """Add this substep's share. Sums run from left to right, as in the native core."""
        state, low_level = self.state, self.low_level
        activation = data.act[self.interface.activations].tolist()
        n_coords, n_muscles = self.interface.n_coords, self.interface.n_muscles
        squares = total = saturated = 0.0
        for a in activation:
            squares += a * a
            total += a
            saturated += 1.0 if a > _SATURATED else 0.0
        effort = squares / n_muscles
        if self.settings.actuation == "torque":
            squares = 0.0
            for a in self._action.tolist():
                squares += a * a
            effort = squares / n_coords
        errors = opposing = 0.0
        is_infeasible = False
        for d in range(n_coords):
            up = down = 0.0
            for i, torque in enumerate(state.torque_per_activation[d].tolist()):
                up += max(torque * activation[i], 0.0)
                down += max(-torque * activation[i], 0.0)
            if up + down > _NEGLIGIBLE:
                opposing += 2.0 * min(up, down) / (up + down)
            if desired is not None:
                assert low_level is not None
                error = 0.0 if low_level.is_torque else (up - down) - float(desired[d])
                errors += error * error
                is_infeasible = is_infeasible or not state.torque_low[d] <= desired[d] <= state.torque_high[d]
        shares = (
            effort,
            total / n_muscles,
            errors / n_coords,
            saturated / n_muscles,
            opposing / n_coords,
            1.0 if is_infeasible else 0.0,
        )
        self._sums = [old + share for old, share in zip(self._sums, shares, strict=True)]

    def _summarise(self) -> None:
        effort, mean, error, saturation, opposing, infeasible = (number / self.frame_skip for number in self._sums)
        self.summary = ControlSummary(effort, mean, math.sqrt(error), saturation, opposing, infeasible)
