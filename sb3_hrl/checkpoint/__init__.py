"""Training that stops anywhere and goes on exactly."""

from sb3_hrl.checkpoint.archive import CheckpointError, newest
from sb3_hrl.checkpoint.checkpointer import Checkpointer
from sb3_hrl.checkpoint.resumable import Resumable, resumable
from sb3_hrl.checkpoint.resume import load, resume
from sb3_hrl.checkpoint.safe_pickle import UntrustedError

__all__ = ["CheckpointError", "Checkpointer", "Resumable", "UntrustedError", "load", "newest", "resumable", "resume"]
