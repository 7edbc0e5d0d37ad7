"""How much of what takes memory is held at a time, by all requests together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Held:
    """A bound on what is held; who would be over it waits for those before it. What alone is over it comes alone."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def hold(self, amount: int) -> AsyncIterator[None]:
        """Hold an amount meanwhile."""
        amount = min(amount, self._most)
        await self._take(amount)
        try:
            yield
        finally:
            self._held -= amount
            self._wake()

    async def _take(self, amount: int) -> None:
        waiter = (amount, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        self._wake()
        try:
            await waiter[1]
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            else:  # its turn had just come
                self._held -= amount
            self._wake()
            raise

    def _wake(self) -> None:
        """Give those who wait their turns, as far as there is room."""
        while self._waiting and self._held + self._waiting[0][0] <= self._most:
            amount, turn = self._waiting.popleft()
            self._held += amount
            if not turn.cancelled():
                turn.set_result(None)
