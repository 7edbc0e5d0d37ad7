"""How much of what takes memory is held at a time, by all requests together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from service.engine.admission import Permit
from service.engine.waiting import WaitingQueue


@dataclass(eq=False)
class _Part:
    permit: Permit
    amount: int
    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Held:
    """A bound on what is held; who would be over it waits, and clients take turns.

    What alone is over it comes alone.
    """

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._waiting: WaitingQueue[_Part] = WaitingQueue()

    @asynccontextmanager
    async def hold(self, permit: Permit, amount: int) -> AsyncIterator[None]:
        """Hold an amount meanwhile, for a request."""
        part = _Part(permit, min(amount, self._most))
        try:
            self._waiting.add(part)
            self._wake()
            await part.turn
        except asyncio.CancelledError:
            self._leave(part)
            raise
        try:
            yield
        finally:
            self._held -= part.amount
            self._wake()

    def _leave(self, part: _Part) -> None:
        if not self._waiting.remove(part):  # its turn had just come
            self._held -= part.amount
        self._wake()

    def _next(self) -> _Part | None:
        return next((part for part in self._waiting.in_turn() if not part.turn.done()), None)  # or it was cancelled

    def _wake(self) -> None:
        """Give those who wait their turns, as far as there is room."""
        while (part := self._next()) and self._held + part.amount <= self._most:
            self._waiting.take(part)
            self._held += part.amount
            part.turn.set_result(None)
