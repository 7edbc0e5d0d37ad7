"""A model's explainer in a thread of its own: opened when it is first asked, closed when nobody has asked for a while.

The thread has one core's worth of threads in ONNX Runtime, whatever serving has, and what waits for it takes turns as
texts do in their pool. So explanations take of the processor what the scheduler gives one thread, and no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from model.package import Manifest
from model.package.heap import trim_heap
from service.engine.admission import Permit
from service.engine.explaining.explainer import Explainer
from service.tasks.pool import SMALL, Pool

IDLE_S = 60.0  # after which the memory of graphs that nobody asks is given back

Given = ParamSpec("Given")
Result = TypeVar("Result")


class Insights:
    """The way to a model's explainer."""

    def __init__(self, folder: Path, manifest: Manifest, idle_s: float = IDLE_S) -> None:
        self.explainer = Explainer(folder, manifest)
        self.pool = Pool("explanations")
        self._idle_s = idle_s
        self._idle_timer: asyncio.TimerHandle | None = None
        self._releasing: asyncio.Task[None] | None = None
        self._is_closed = False

    async def run(
        self, permit: Permit, function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
    ) -> Result:
        """Call a function that uses the explainer, in the thread."""
        self._restart_idle_timer()
        try:
            return await self.pool.run(permit, SMALL + 1, function, *args, **kwargs)
        finally:
            self._restart_idle_timer()

    async def close(self) -> None:
        """Free the thread behind what it works on."""
        self._is_closed = True
        for later in (self._idle_timer, self._releasing):
            if later is not None:
                later.cancel()
        await self.pool.close()

    def _restart_idle_timer(self) -> None:
        """Give the memory back after `idle_s` without another request, counted from now."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._is_closed:  # while a request was in the thread
            return
        self._idle_timer = asyncio.get_running_loop().call_later(self._idle_s, self._rest)

    def _rest(self) -> None:
        self._releasing = asyncio.create_task(self.pool.run(Permit.of_one(), SMALL + 1, self._give_back))

    def _give_back(self) -> None:
        self.explainer.release()
        trim_heap()
