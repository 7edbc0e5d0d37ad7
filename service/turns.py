"""Turns on the event loop: long work on it is done in parts, between which everybody else has a turn."""

from __future__ import annotations

import asyncio
import time

MAX_TURN_S = 0.01


class Turn:
    """One's own turn, which begins when this is made."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def give(self) -> None:
        """Let the others have theirs, if one's own has lasted long."""
        if time.perf_counter() - self._since > MAX_TURN_S:
            await asyncio.sleep(0)
            self._since = time.perf_counter()
