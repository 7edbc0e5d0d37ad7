"""What can go wrong with a sequence or an input that was asked for rightly."""

from __future__ import annotations


class Overloaded(Exception):
    """There is no room to wait in; nothing was computed."""


class Replaced(Exception):
    """Another package lies where that of the model lay when it was loaded."""


class EngineFailed(Exception):
    """The graphs failed on this sequence or input, and on it alone; others go on."""


class EngineClosed(EngineFailed):
    """Nothing is computed any more, whatever it is: the model is being closed, or its loop has broken."""
