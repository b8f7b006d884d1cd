"""``sb3-hrl muscles MODEL.xml``: what the muscles of a model can do, and whether they can be driven."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from rich.console import Console
from rich.table import Table

from sb3_hrl.envs.myo import PREFIX, compile_myo_model
from sb3_hrl.errors import MissingExtraError
from sb3_hrl.muscle import MuscleInterface


def report_muscles(path: str, joints: Sequence[str]) -> int:
    """
    Print the muscles, joints and couplings of a model.

    :param path: an MJCF file, or one of MyoSim's models (``myo_sim:myolegs``)
    :param joints: only these joints; empty for all that a muscle spans
    :return: 0, or 1 if the model cannot be used, with the reason on stderr
    """
    try:
        interface = MuscleInterface(_load(path), joints)
    except (ValueError, MissingExtraError) as error:
        print(f"sb3-hrl muscles: {path}: {str(error).strip()}", file=sys.stderr)
        return 1
    # Without a terminal rich would fold the tables to 80 columns, in the middle of names.
    console = Console()
    console.width = max(console.width, 160) if not console.is_terminal else console.width
    for table in (_muscles(interface), _joints(interface), _couplings(interface)):
        if table.row_count:
            console.print(table)
    n_all = interface.n_coords * interface.n_muscles
    console.print(
        f"{interface.n_muscles} muscles drive {interface.n_coords} coordinates; {interface.n_packed} of {n_all} torques per "
        "activation are not structurally zero.",
        highlight=False,
        soft_wrap=True,
    )
    console.print(
        "qfrc_actuator = J^T (gain * activation + bias) holds; the largest error in random states is "
        f"{interface.identity_error:.1e} Nm.",
        highlight=False,
        soft_wrap=True,
    )
    return 0


def _load(path: str) -> Any:
    if path.startswith(PREFIX):
        return mujoco.MjModel.from_binary_path("model.mjb", {"model.mjb": compile_myo_model(path)})
    if not Path(path).is_file():
        raise ValueError("there is no such file")
    return mujoco.MjModel.from_xml_path(path)


def _muscles(interface: MuscleInterface) -> Table:
    model = interface.model
    table = Table("muscle", "F_max (N)", "spans: moment arm (cm)", title="Muscles")
    for i, muscle in enumerate(interface.muscle_ids.tolist()):
        force, scale = model.actuator_gainprm[muscle, 2:4]
        peak = force if force >= 0 else scale / model.actuator_acc0[model.actuator_outadr[muscle]]
        spanned = [d for d in range(interface.n_coords) if d * interface.n_muscles + i in interface.pattern]
        arms = [
            f"{interface.joint_names[d]} {_interval(100 * interface.arm_low[d, i], 100 * interface.arm_high[d, i])}"
            for d in spanned
        ]
        table.add_row(interface.muscle_names[i], f"{peak:.0f}", ", ".join(arms) or "none of these joints")
    return table


def _joints(interface: MuscleInterface) -> Table:
    model = interface.model
    table = Table("joint", "range (rad or m)", "muscles", "active torque (Nm or N)", title="Driven joints")
    spans = np.isin(np.arange(interface.n_coords * interface.n_muscles), interface.pattern)
    for d, joint in enumerate(interface.joint_ids.tolist()):
        limits = _interval(*model.jnt_range[joint]) if model.jnt_limited[joint] else "unlimited"
        n_muscles = np.count_nonzero(spans.reshape(interface.n_coords, -1)[d])
        torques = _interval(interface.reach_low[d], interface.reach_high[d])
        table.add_row(interface.joint_names[d], limits, str(n_muscles), torques)
    return table


def _couplings(interface: MuscleInterface) -> Table:
    model = interface.model
    table = Table("joint", "follows", "polynomial", title="Coupled coordinates")
    for coupling in interface.couplings:
        terms = [f"{c:+.4g} x^{power}" for power, c in enumerate(coupling.coefficients) if c]
        other = model.joint(coupling.other).name if coupling.other >= 0 else "nothing: it is held in place"
        table.add_row(model.joint(coupling.joint).name, other, " ".join(terms) or "0")
    return table


def _interval(low: float, high: float) -> str:
    return f"{low:.3g} … {high:.3g}"
