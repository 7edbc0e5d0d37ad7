"""Probes share one answer: however many ask, a replica elsewhere is asked once a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import Context
from typing import Generic, TypeVar

Answer = TypeVar("Answer")

FRESH_FOR_S = 1.0
GIVE_UP_AFTER_S = 5.0  # a question that is never answered must not be the last


class StatusCache(Generic[Answer]):
    """The newest answer to a question that costs something, at most a second old; errors are answers too.

    Whoever asks while the question is on its way waits for the same answer, for five seconds at most. One who leaves
    ends it for nobody.
    """

    def __init__(
        self,
        ask: Callable[[], Awaitable[Answer]],
        fresh_for_s: float = FRESH_FOR_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask, self._fresh_for_s, self._clock = ask, fresh_for_s, clock
        self._asked: asyncio.Task[Answer] | None = None
        self._answered_at = 0.0

    async def get(self) -> Answer:
        """Return the answer; raises what asking raised, and `TimeoutError`."""
        if self._asked is None or (self._asked.done() and self._clock() - self._answered_at >= self._fresh_for_s):
            # In no request's context. Ray cancels what a request has asked of others when its client leaves, and takes
            # who is cut by that for one that was left, too: questions to several models would cut each other for ever.
            self._asked = asyncio.create_task(self._answer(), context=Context())
        return await asyncio.shield(self._asked)

    async def _answer(self) -> Answer:
        try:
            async with asyncio.timeout(GIVE_UP_AFTER_S):
                return await self._ask()
        finally:
            self._answered_at = self._clock()
