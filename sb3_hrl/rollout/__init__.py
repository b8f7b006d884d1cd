"""Rollout buffers, and what fills them."""

from sb3_hrl.rollout.images import ImageRolloutBuffer
from sb3_hrl.rollout.time_aware import TimeAwareCallback, TimeAwareDictRolloutBuffer, TimeAwareRolloutBuffer

__all__ = ["ImageRolloutBuffer", "TimeAwareCallback", "TimeAwareDictRolloutBuffer", "TimeAwareRolloutBuffer"]
