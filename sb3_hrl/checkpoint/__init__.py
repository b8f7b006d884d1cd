"""Training that stops anywhere and goes on exactly."""

from sb3_hrl.checkpoint.archive import CheckpointError, newest
from sb3_hrl.checkpoint.checkpointer import Checkpointer
from sb3_hrl.checkpoint.metadata import compare_with
from sb3_hrl.checkpoint.resumable import Resumable, resumable
from sb3_hrl.checkpoint.resume import check, find, load, read_metadata, read_normalization, resume
from sb3_hrl.checkpoint.safe_pickle import UntrustedError

__all__ = [
    "CheckpointError",
    "Checkpointer",
    "Resumable",
    "UntrustedError",
    "check",
    "compare_with",
    "find",
    "load",
    "newest",
    "read_metadata",
    "read_normalization",
    "resumable",
    "resume",
]
