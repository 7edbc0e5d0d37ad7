"""What an engine and a batcher work with: a loop that lives while there is work, and one thread for what blocks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class Worker:
    """Owner of the thread, of the loop's task, and of the time of the last progress."""

    def __init__(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._loop: asyncio.Task[None] | None = None
        self._last_progress = time.monotonic()

    def wake(self) -> None:
        """Start the loop if it sleeps."""
        if self._is_idle():
            self._last_progress = time.monotonic()
            self._loop = asyncio.get_running_loop().create_task(self._work())

    async def run(self, function: Callable[[Argument], Result], argument: Argument) -> Result:
        """Run a function in the thread; its return is progress, its error is raised."""
        result = await asyncio.get_running_loop().run_in_executor(self._thread, function, argument)
        self._last_progress = time.monotonic()
        return result

    def is_progressing(self, patience_s: float) -> bool:
        """Whether the loop sleeps, or has made progress within the last `patience_s` seconds."""
        return self._is_idle() or time.monotonic() - self._last_progress < patience_s

    async def close(self) -> None:
        """Wait for the loop's end and free the thread."""
        if self._loop is not None:
            await self._loop
        self._thread.shutdown()

    def _is_idle(self) -> bool:
        return self._loop is None or self._loop.done()
