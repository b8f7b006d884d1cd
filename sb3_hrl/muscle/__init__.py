"""Muscles of a MuJoCo model: their torques, stable PD control, and low levels that turn torques into activations."""

from sb3_hrl.muscle.control import ControlSummary, LowLevel, MuscleControl
from sb3_hrl.muscle.interface import Coupling, MuscleInterface, MuscleState
from sb3_hrl.muscle.qp import QpLowLevel, TorqueLowLevel
from sb3_hrl.muscle.settings import ACTIVATIONS, ACTUATIONS, MuscleSettings, MuscleSpec
from sb3_hrl.muscle.stable_pd import StablePd

__all__ = [
    "ACTIVATIONS",
    "ACTUATIONS",
    "ControlSummary",
    "Coupling",
    "LowLevel",
    "MuscleControl",
    "MuscleInterface",
    "MuscleSettings",
    "MuscleSpec",
    "MuscleState",
    "QpLowLevel",
    "StablePd",
    "TorqueLowLevel",
]
