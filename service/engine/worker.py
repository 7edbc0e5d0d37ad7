"""What an engine and a batcher work with: a loop that lives while there is work, and one thread for what blocks."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread, get_native_id
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

REST_S = 2.0  # without work, after which memory is given back; shorter pauses would only take it again

Argument = TypeVar("Argument")
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Call:
    function: Callable[[Any], Any]
    argument: Any
    answer: asyncio.Future[Any]


class Worker:
    """Owner of the thread, of the loop's task, and of the time of the last progress.

    When there has been no work for `REST_S`, `rest` is called in the thread, once before there is work again.
    The thread is its own rather than an executor's, whose locks cost a short step several percent. `niceness` is added
    to the process's: where cores are short, threads of less have the larger part of them.
    """

    def __init__(
        self, name: str, work: Callable[[], Coroutine[Any, Any, None]], rest: Callable[[], None], niceness: int = 0
    ) -> None:
        self._work, self._rest, self._niceness = work, rest, niceness
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = Thread(target=self._answer_calls, name=name, daemon=True)
        self._thread.start()
        self._loop: asyncio.Task[None] | None = None
        self._last_progress = time.monotonic()
        self.is_broken = False  # by a failure of the loop itself, after which no state can be trusted

    def wake(self) -> None:
        """Start the loop if it sleeps."""
        if self._is_idle():
            self._last_progress = time.monotonic()
            self._loop = asyncio.get_running_loop().create_task(self._work())

    async def run(self, function: Callable[[Argument], Result], argument: Argument) -> Result:
        """Run a function in the thread; its return is progress, its error is raised."""
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._calls.put(_Call(function, argument, answer))
        result = await answer
        self._last_progress = time.monotonic()
        return result

    def is_progressing(self, patience_s: float) -> bool:
        """Whether the loop is whole, and sleeps or has made progress within the last `patience_s` seconds."""
        if self.is_broken:
            return False
        return self._is_idle() or time.monotonic() - self._last_progress < patience_s

    async def close(self) -> None:
        """Wait for the loop's end and free the thread."""
        if self._loop is not None:
            await self._loop
        self._calls.put(None)
        self._thread.join()

    def _is_idle(self) -> bool:
        return self._loop is None or self._loop.done()

    def _next_call(self) -> _Call | None:
        while True:
            with suppress(Empty):
                return self._calls.get(timeout=REST_S)
            if self._is_idle():
                try:
                    self._rest()
                except Exception:
                    logger.exception("memory could not be given back")
                return self._calls.get()

    def _answer_calls(self) -> None:
        if self._niceness and sys.platform == "linux":  # where threads have a niceness of their own
            thread = get_native_id()
            os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + self._niceness)
        while (call := self._next_call()) is not None:
            try:
                settle: Callable[[asyncio.Future[Any], Any], None] = _succeed
                value = call.function(call.argument)
            except Exception as error:
                settle, value = _fail, error
            call.answer.get_loop().call_soon_threadsafe(settle, call.answer, value)


def _succeed(answer: asyncio.Future[Any], result: object) -> None:
    if not answer.done():  # nobody waits any more if the loop's task was cancelled
        answer.set_result(result)


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
