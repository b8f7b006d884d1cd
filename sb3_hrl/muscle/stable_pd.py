"""
Stable PD control (Tan, Liu and Turk 2011, "Stable proportional-derivative controllers"): the torque of a spring and a damper
at the *next* time step, which stays stable at stiffness and step sizes where the explicit formula diverges.
``native/include/sb3_hrl/stable_pd.hpp`` is the fast twin.
"""

from typing import Any

import mujoco
import numpy as np

from sb3_hrl.errors import NativeError
from sb3_hrl.muscle.interface import MuscleInterface


class StablePd:
    """
    :param interface: the model's muscles and coordinates
    :param stiffness: ``[D]``, Nm/rad
    :param damping: ``[D]``, Nm s/rad
    """

    def __init__(self, interface: MuscleInterface, stiffness: np.ndarray, damping: np.ndarray) -> None:
        self.interface = interface
        self.stiffness = np.asarray(stiffness, np.float64)
        self.damping = np.asarray(damping, np.float64)
        # Where each independent degree of freedom stands in the reduced equations, and the driven coordinates among them.
        place = np.full(interface.model.nv, -1)
        place[interface.independent] = np.arange(len(interface.independent))
        self._rows = place[interface.dofs]
        self._places = np.where(interface.followed >= 0, place[interface.followed], -1)

    def torque(self, data: Any, target: np.ndarray) -> np.ndarray:
        """
        With ``q`` reduced to the independent coordinates by ``T = dq / dq_independent``, time step ``h``::

            p = -stiffness * (q + h * v - target)        d = -damping * v
            acceleration = (T' M T + h * damping)^-1 (T' (passive - bias + constraint) + p + d)
            torque = p + d - h * damping * acceleration

        :param data: after ``mj_step1``; its ``qfrc_constraint`` is still that of the step before
        :param target: ``[D]``, rad
        :return: ``[D]``, Nm
        """
        interface, model = self.interface, self.interface.model
        h = model.opt.timestep
        full = np.empty((model.nv, model.nv))
        mujoco.mj_fullM(model, data, full)
        forces = (data.qfrc_passive - data.qfrc_bias) + data.qfrc_constraint
        if interface.couplings:
            matrix, force = self._reduced(full, forces, np.array(interface.slopes(data)))
        else:
            matrix, force = full, forces
        position, velocity = data.qpos[interface.positions], data.qvel[interface.dofs]
        pd = -self.stiffness * ((position + h * velocity) - target) + -self.damping * velocity
        matrix[self._rows, self._rows] += h * self.damping
        force[self._rows] += pd
        if mujoco.mju_cholFactor(matrix, mujoco.mjMINVAL) < len(force):
            raise NativeError("stable PD: the inertia matrix is not positive definite")
        acceleration = np.empty_like(force)
        mujoco.mju_cholSolve(acceleration, matrix, force)
        return pd - h * self.damping * acceleration[self._rows]

    def _reduced(self, full: np.ndarray, forces: np.ndarray, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """``T' M T`` and ``T' f``; ``add.at`` adds in the order of the degrees of freedom, as the native core does."""
        n = len(self.interface.independent)
        kept = np.flatnonzero(self._places >= 0)
        places, slopes = self._places[kept], slopes[kept]
        matrix, force = np.zeros((n, n)), np.zeros(n)
        np.add.at(matrix, (places[:, None], places[None, :]), slopes[:, None] * full[np.ix_(kept, kept)] * slopes[None, :])
        np.add.at(force, places, slopes * forces[kept])
        return matrix, force
