"""What a request has cost so far: the engine counts it, and whoever let the request in charges it."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Spending:
    """Tokens that were computed for a request so far, whether or not anybody gets its answer."""

    tokens: int = 0


SPENDING: ContextVar[Spending | None] = ContextVar("spending", default=None)  # of the request in progress
