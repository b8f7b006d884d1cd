"""Gymnasium wrappers."""

from sb3_hrl.wrappers.action_hold import ActionHold

__all__ = ["ActionHold"]
