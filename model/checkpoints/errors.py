"""What can be wrong with a checkpoint."""

from __future__ import annotations


class CheckpointError(Exception):
    """A checkpoint cannot be read, or is of a kind that is not supported; the message says which and why."""
