"""
Muscle torques, stable PD and activations from their definitions: slow, dense and independent of ``sb3_hrl.muscle``. Moment
arms are finite differences of lengths, forces are MuJoCo's own at activation zero and one, and systems are solved by NumPy
and SciPy.
"""

from typing import Any

import mujoco
import numpy as np
from scipy.optimize import lsq_linear

_EPSILON = 1e-6


def coupled(model: Any, qpos: np.ndarray) -> np.ndarray:
    """
    :param model: the model
    :param qpos: positions
    :return: the same with every joint that an equality ties to another where that equality wants it
    """
    qpos = qpos.copy()
    for _ in range(model.neq):  # as often as a chain can be long
        for equality in range(model.neq):
            if model.eq_type[equality] == mujoco.mjtEq.mjEQ_JOINT and model.eq_active0[equality]:
                at = model.jnt_qposadr[model.eq_obj1id[equality]]
                other = model.eq_obj2id[equality]
                x = 0.0 if other < 0 else qpos[model.jnt_qposadr[other]] - model.qpos0[model.jnt_qposadr[other]]
                qpos[at] = model.qpos0[at] + np.polyval(model.eq_data[equality, 4::-1], x)
    return qpos


def tangent(model: Any, qpos: np.ndarray, dofs: np.ndarray) -> np.ndarray:
    """
    :param model: the model, whose coupled joints are hinges and slides
    :param qpos: positions, where couplings hold
    :param dofs: degrees of freedom of hinge and slide joints ``[D]``
    :return: how all degrees of freedom move with these, ``[nv, D]``
    """
    columns = []
    for dof in dofs:
        ahead, behind, column = qpos.copy(), qpos.copy(), np.zeros(model.nv)
        at = model.jnt_qposadr[model.dof_jntid[dof]]
        ahead[at] += _EPSILON
        behind[at] -= _EPSILON
        mujoco.mj_differentiatePos(model, column, 2 * _EPSILON, coupled(model, behind), coupled(model, ahead))
        columns.append(column)
    return np.stack(columns, axis=1)


def moment_arms(model: Any, qpos: np.ndarray, dofs: np.ndarray, outputs: np.ndarray) -> np.ndarray:
    """
    :param model: the model
    :param qpos: positions, where couplings hold
    :param dofs: degrees of freedom of hinge and slide joints ``[D]``
    :param outputs: which lengths ``[M]``
    :return: derivative of the lengths, ``[D, M]``
    """
    data, rows = mujoco.MjData(model), []
    for dof in dofs:
        lengths = []
        for step in (_EPSILON, -_EPSILON):
            moved = qpos.copy()
            moved[model.jnt_qposadr[model.dof_jntid[dof]]] += step
            data.qpos[:] = coupled(model, moved)
            mujoco.mj_fwdPosition(model, data)
            lengths.append(data.actuator_length[outputs].copy())
        rows.append((lengths[0] - lengths[1]) / (2 * _EPSILON))
    return np.stack(rows)


def forces(model: Any, data: Any, muscles: np.ndarray, activation: float) -> np.ndarray:
    """
    :param model: the model
    :param data: its positions and velocities are used; it is not changed
    :param muscles: actuators ``[M]``
    :param activation: of all of them
    :return: MuJoCo's own forces ``[M]``
    """
    other = mujoco.MjData(model)
    other.qpos[:], other.qvel[:] = data.qpos, data.qvel
    other.act[model.actuator_actadr[muscles]] = activation
    mujoco.mj_forward(model, other)
    return other.actuator_force[model.actuator_outadr[muscles]].copy()


def stable_pd(
    model: Any, data: Any, dofs: np.ndarray, target: np.ndarray, stiffness: np.ndarray, damping: np.ndarray
) -> np.ndarray:
    """
    :param model: the model
    :param data: after ``mj_forward``
    :param dofs: the driven degrees of freedom ``[D]``
    :param target: ``[D]``
    :param stiffness: ``[D]``
    :param damping: ``[D]``
    :return: torques ``[D]``, straight from the equations
    """
    followers = {
        int(model.jnt_dofadr[model.eq_obj1id[e]])
        for e in range(model.neq)
        if model.eq_type[e] == mujoco.mjtEq.mjEQ_JOINT and model.eq_active0[e]
    }
    free = np.array([dof for dof in range(model.nv) if dof not in followers])
    t = tangent(model, data.qpos.copy(), free)
    mass = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, mass)
    h = model.opt.timestep
    k_p, k_d, wanted = np.zeros(len(free)), np.zeros(len(free)), np.zeros(len(free))
    rows = [int(np.flatnonzero(free == dof)[0]) for dof in dofs]
    k_p[rows], k_d[rows], wanted[rows] = stiffness, damping, target
    q = data.qpos[model.jnt_qposadr[model.dof_jntid[free]]]
    v = data.qvel[free]
    p, d = -np.diag(k_p) @ (q + h * v - wanted), -np.diag(k_d) @ v
    c = data.qfrc_bias - data.qfrc_passive
    acceleration = np.linalg.solve(t.T @ mass @ t + h * np.diag(k_d), t.T @ (data.qfrc_constraint - c) + p + d)
    return (p + d - h * np.diag(k_d) @ acceleration)[rows]


def activations(torque_per_activation: np.ndarray, torque: np.ndarray, torque_scale: float, effort: float) -> np.ndarray:
    """
    :param torque_per_activation: ``[D, M]``
    :param torque: ``[D]``
    :param torque_scale: Nm
    :param effort: weight of the squared activations
    :return: the activations in [0, 1] of least cost ``[M]``, by bounded least squares
    """
    n = torque_per_activation.shape[1]
    matrix = np.concatenate([torque_per_activation / torque_scale, np.sqrt(effort) * np.eye(n)])
    vector = np.concatenate([torque / torque_scale, np.zeros(n)])
    return lsq_linear(matrix, vector, (0.0, 1.0), method="bvls", tol=1e-14, max_iter=1000).x
