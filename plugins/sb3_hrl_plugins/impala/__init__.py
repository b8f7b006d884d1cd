"""IMPALA: V-trace, sequential and with actor processes."""

from sb3_hrl_plugins.impala.impala import IMPALA
from sb3_hrl_plugins.impala.vtrace import VTrace, vtrace

__all__ = ["IMPALA", "VTrace", "vtrace"]
