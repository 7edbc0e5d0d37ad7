"""What can be wrong with a model that is asked for by name."""

from __future__ import annotations


class HubError(Exception):
    """A name leads to no model that can be served; the message says why, and what to do."""


class HubUnreachable(HubError):
    """The hub does not answer, must not be asked, or there is no place for its files; those of before may still do."""
