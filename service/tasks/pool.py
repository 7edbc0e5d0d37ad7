"""A thread for what would make the event loop wait: encoding and decoding long texts, cutting sentences, images.

Requests hand in one piece after the other, and clients and requests take turns, as before the engine: a large request
delays a small one by a piece. What waits is bounded by admission, before the first piece.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from service.engine.admission import Admission, AdmissionLimits, Permit
from service.engine.errors import EngineClosed
from service.engine.waiting import WaitingQueue
from service.turns import Turn

Given = ParamSpec("Given")
Result = TypeVar("Result")

CHARACTERS_PER_READ_TOKEN = 4  # that take as long to encode as one token does to be looked at in an answer
SMALL = 2_000  # characters, which take one or two milliseconds to encode: no more than to ask a thread to


@dataclass(eq=False)
class _Piece:
    permit: Permit
    turn: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Pool:
    """One thread, as the other cores belong to the graphs, and the queue before it."""

    def __init__(self, name: str = "texts") -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting: WaitingQueue[_Piece] = WaitingQueue()
        self._is_busy = self._is_closed = False
        self._small = Turn()  # of small work, however much of it there is
        self._running: set[asyncio.Future[Any]] = set()  # pieces that the thread has, or is about to take
        self._working_since: float | None = None  # on the piece that the thread has

    async def run(
        self, permit: Permit, size: int, function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Result:
        """Call a function for a request: at once if it works on no more than a few characters, else in the thread.

        Raises `EngineClosed` if the pool is closed before it is done.
        """
        if size <= SMALL:
            await self._small.give()
            return function(*args, **kwargs)
        self._check_open()
        await self._turn(permit)
        try:
            self._check_open()  # it may have been closed in the moment of the turn
            return await self._in_thread(lambda: self._work(function, *args, **kwargs))
        finally:
            self._pass_on()

    def stalled_s(self) -> float:
        """Return for how long the thread has worked on the piece that it has, in seconds; from any thread."""
        since = self._working_since
        return 0.0 if since is None else time.monotonic() - since

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        """Let the thread work; raises `EngineClosed` if the pool is closed meanwhile."""
        running = asyncio.get_running_loop().run_in_executor(self._executor, work)
        self._running.add(running)
        try:
            return await running
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():  # and not by `close`
                raise
            raise EngineClosed from None
        finally:
            self._running.discard(running)

    async def close(self) -> None:
        """End all requests, and free the thread behind what it works on; others go on meanwhile."""
        self._is_closed = True
        for running in self._running:
            running.cancel()  # for who waits; the thread cannot be stopped
        for piece in list(self._waiting.in_turn()):
            if not piece.turn.done():
                piece.turn.set_exception(EngineClosed())
            self._waiting.remove(piece)
        await asyncio.to_thread(self._executor.shutdown)

    def _work(self, function: Callable[Given, Result], /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        self._working_since = time.monotonic()
        try:
            return function(*args, **kwargs)
        except StopIteration as error:  # which no future can hold: who waits would wait for ever
            raise RuntimeError("bug: StopIteration in a task") from error
        finally:
            self._working_since = None

    def _check_open(self) -> None:
        if self._is_closed:
            raise EngineClosed

    async def _turn(self, permit: Permit) -> None:
        if not self._is_busy:
            self._is_busy = True
            return
        piece = _Piece(permit)
        self._waiting.add(piece)
        try:
            await piece.turn
        except asyncio.CancelledError:
            if not self._waiting.remove(piece):  # its turn had just come
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give the turn to the next."""
        following = next((piece for piece in self._waiting.in_turn() if not piece.turn.done()), None)  # or cancelled
        self._is_busy = following is not None
        if following is not None:
            self._waiting.take(following)
            following.turn.set_result(None)


class AdmittingPool(Pool):
    """A pool for work that is done before a model is known, whose queue would bound what waits."""

    def __init__(self, name: str, most: int) -> None:
        super().__init__(name)
        self._admission = Admission(AdmissionLimits(max_waiting_slots=most))

    def admit(self, client: str, slots: int) -> Permit:
        """Let a client's work in; raises `Overloaded` where that would be more than may wait."""
        return self._admission.admit(client, slots, 0)
