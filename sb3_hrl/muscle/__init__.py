"""Muscles of a MuJoCo model: their torques, stable PD control, and low levels that turn torques into activations."""

from sb3_hrl.muscle.buffer import MuscleBuffer
from sb3_hrl.muscle.control import ControlSummary, LowLevel, MuscleControl
from sb3_hrl.muscle.interface import Coupling, MuscleInterface, MuscleState
from sb3_hrl.muscle.learner import MuscleLearner, MuscleMetrics
from sb3_hrl.muscle.muscles import Muscles, NetworkLowLevel
from sb3_hrl.muscle.network import MuscleNetwork
from sb3_hrl.muscle.pretrain import pretrain, random_tuples
from sb3_hrl.muscle.qp import QpLowLevel, TorqueLowLevel
from sb3_hrl.muscle.settings import ACTIVATIONS, ACTUATIONS, MuscleSettings, MuscleSpec
from sb3_hrl.muscle.stable_pd import StablePd

__all__ = [
    "ACTIVATIONS",
    "ACTUATIONS",
    "ControlSummary",
    "Coupling",
    "LowLevel",
    "MuscleBuffer",
    "MuscleControl",
    "MuscleInterface",
    "MuscleLearner",
    "MuscleMetrics",
    "MuscleNetwork",
    "MuscleSettings",
    "MuscleSpec",
    "MuscleState",
    "Muscles",
    "NetworkLowLevel",
    "QpLowLevel",
    "StablePd",
    "TorqueLowLevel",
    "pretrain",
    "random_tuples",
]
