"""What an engine and a batcher work with: a loop that lives while there is work, and threads for what blocks."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import Any, NamedTuple, TypeVar

from service.engine.isolation import as_exception
from service.engine.priority import COMPUTES, YIELDS, lower

logger = logging.getLogger(__name__)

REST_S = 2.0  # without work, after which memory is given back; shorter pauses would only take it again
BEGIN_S = 0.002  # the longest that the event loop stands still for a thread to begin

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class _Call(NamedTuple):
    function: Callable[[Any], Any]
    argument: Any
    answer: asyncio.Future[Any]
    has_begun: Event | None = None  # if somebody waits for that


class Worker:
    """Owner of the threads, of the loop's task, and of the time of the last progress.

    One function runs at a time, in one thread; in another, which yields the cores to all others, if its work may wait.
    Both yield them to threads that do not compute.
    When there has been no work for `REST_S` since the last, `rest` is called, once before there is work again.
    """

    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, None]], rest: Callable[[], None]) -> None:
        self._name, self._work, self._rest = name, work, rest
        self._run_lock = Lock()
        self._has_rested = True  # who opens a model gives back what that took
        self._thread = _CallThread(name, self._run_lock, self._rest_if_idle)
        self._yielding_thread: _CallThread | None = None  # made when it is first needed
        self._loop: asyncio.Task[None] | None = None
        self._last_progress = time.monotonic()
        self.is_broken = False  # by a failure of the loop itself, after which no state can be trusted, or closed

    def wake(self) -> None:
        """Start the loop if it sleeps and is whole."""
        if self._is_idle() and not self.is_broken:
            self._last_progress = time.monotonic()
            # In no request's context: what the loop logs is of all who are in it, not of whoever woke it.
            self._loop = asyncio.get_running_loop().create_task(self._work(), context=Context())

    async def run(
        self, function: Callable[[Argument], Result], argument: Argument, *, yields: bool = False, first: bool = False
    ) -> Result:
        """Run a function in a thread; its return is progress, its error is raised.

        `first`: before anything else that the event loop has to do. The thread and the loop need the interpreter, and
        the loop, which has it, would write to each of many readers what the step before has brought, while a device has
        nothing to do. So it stands still until the thread has begun. Where cores are few that costs more than it saves.
        """
        answer: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._has_rested = False
        thread, has_begun = self._thread_that_yields() if yields else self._thread, Event() if first else None
        thread.calls.put(_Call(function, argument, answer, has_begun))
        if has_begun is not None:
            has_begun.wait(BEGIN_S)
        result = await answer
        self._last_progress = time.monotonic()
        return result

    def is_progressing(self, patience_s: float) -> bool:
        """Whether the loop is whole, and sleeps or has made progress within the last `patience_s` seconds."""
        return not self.is_broken and self.stalled_s() < patience_s

    def stalled_s(self) -> float:
        """Return for how long the loop has been awake without progress, in seconds; from any thread."""
        return 0.0 if self._is_idle() else time.monotonic() - self._last_progress

    async def close(self) -> None:
        """Wait for the loop's end and free the threads; there is nobody to give work to from now on.

        Nothing of whoever works is held any more: a circle of objects would stay for ever where the collector of
        garbage passes them over (`Replica`).
        """
        self.is_broken = True
        if self._loop is not None:
            await self._loop
        for thread in (self._thread, self._yielding_thread):
            if thread is not None:
                await asyncio.to_thread(thread.close)  # it may be giving memory back
        self._work, self._rest = _nothing, _no_rest

    def _thread_that_yields(self) -> _CallThread:
        if self._yielding_thread is None:
            self._yielding_thread = _CallThread(f"{self._name}-yielding", self._run_lock, self._rest_if_idle, YIELDS)
        return self._yielding_thread

    def _is_idle(self) -> bool:
        return self._loop is None or self._loop.done()

    def _rest_if_idle(self) -> float:
        """Rest, unless there is work or nothing was done since the last time; returns when to ask again, in seconds.

        That is 0 where there is no work: whoever brings some wakes a thread.
        """
        with self._run_lock:
            left = REST_S - (time.monotonic() - self._last_progress)
            if left > 0:  # something was done lately, maybe by the other thread
                return left
            has_rested, self._has_rested = self._has_rested, True  # before looking: what begins meanwhile asks anew
            if not self._is_idle():
                self._has_rested = False
                return REST_S
            if not has_rested:
                try:
                    self._rest()
                except Exception:
                    logger.exception("memory could not be given back")
            return 0


async def _nothing() -> None:
    """Be the loop of a worker that is closed."""


def _no_rest() -> None:
    """Be the rest of a worker that is closed."""


class _CallThread:
    """A thread, and what it is to call, one after the other. Between calls that are far apart it asks for a rest.

    It is its own rather than an executor's, whose locks cost a short step several percent.
    """

    def __init__(self, name: str, run_lock: Lock, rest: Callable[[], float], niceness: int = COMPUTES) -> None:
        self.calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._run_lock, self._rest, self._niceness = run_lock, rest, niceness
        self._thread = Thread(target=self._answer_calls, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it behind what it is to call."""
        self.calls.put(None)
        self._thread.join()

    def _next_call(self) -> _Call | None:
        wait = REST_S
        while wait:
            with suppress(Empty):
                return self.calls.get(timeout=wait)
            wait = self._rest()
        return self.calls.get()

    def _answer_calls(self) -> None:
        lower(self._niceness)
        while (call := self._next_call()) is not None:
            if call.has_begun is not None:
                call.has_begun.set()
            try:
                resolve: Callable[[asyncio.Future[Any], Any], None] = _succeed
                with self._run_lock:
                    value = call.function(call.argument)
            except BaseException as error:  # a library's may be none of `Exception`, and this thread is to go on
                resolve, value = _fail, as_exception(error)
            with suppress(RuntimeError):  # the event loop has ended meanwhile, and with it whoever waits
                call.answer.get_loop().call_soon_threadsafe(resolve, call.answer, value)
            del call, value  # a thread that waits keeps nobody's texts and numbers


def _succeed(answer: asyncio.Future[Any], result: object) -> None:
    if not answer.done():  # nobody waits any more if the loop's task was cancelled
        answer.set_result(result)


def _fail(answer: asyncio.Future[Any], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
