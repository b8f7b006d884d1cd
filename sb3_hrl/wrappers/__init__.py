"""Gymnasium wrappers."""

from sb3_hrl.wrappers.action_hold import ActionHold, HoldSchedule

__all__ = ["ActionHold", "HoldSchedule"]
