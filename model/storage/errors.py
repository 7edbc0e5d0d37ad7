"""What can go wrong between a store and a folder."""

from __future__ import annotations


class StorageError(Exception):
    """A package cannot be brought from its store; the message says why, and shows no secret of its address."""


class Interrupted(Exception):
    """A transfer ended early; it may be taken up again where it ended."""
