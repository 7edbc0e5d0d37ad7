"""A model that fails in a replica of several is opened anew, there: the others' requests go on.

Failures of the graphs are isolated in the engine (`engine/isolation.py`). What is left are bugs of the engine, after
which none of its state can be trusted, and a graph that does not return. A thread in a graph cannot be ended, so what
it works on is left to itself, and goes when the graph does return.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from model.package import PackageError
from service.errors import NotReady
from service.schemas import AnyEvent, AnyRequest, ModelHealth, Response
from service.tasks.task import ANONYMOUS, LocalTask

logger = logging.getLogger(__name__)

PAUSE_S = 5.0  # between two openings: one that fails at once must not take the others' time
MAX_STUCK = 2  # threads and sessions of a model that are left to themselves
MAX_FAILED = 3  # openings one after the other
HANGS_S = 600.0  # an opening that takes longer will not end: a disk is gone, or a device that a stuck step holds


class ReopenedTask:
    """A task in this process that is replaced by a new one when it makes no progress; requests meanwhile get a 503."""

    is_remote = False

    def __init__(self, load: Callable[[], LocalTask], clock: Callable[[], float] = time.monotonic) -> None:
        self._load, self._clock = load, clock
        self._task = load()
        self.manifest = self._task.manifest
        self._opening: asyncio.Task[None] | None = None
        self._open_again_at = self._opening_since = 0.0
        self._closing: set[asyncio.Task[None]] = set()
        self._left: LocalTask | None = None  # the task that is being closed, until another is there
        self._failed = 0  # openings since the last that did not
        self.is_given_up = False  # lost, and no other model was at work at one check since

    async def predict(self, request: AnyRequest, client: str = ANONYMOUS) -> Response:
        """Answer a request; raises `NotReady` while there is no model."""
        return await self._whole().predict(request, client)

    async def stream(self, request: AnyRequest, client: str = ANONYMOUS) -> AsyncGenerator[AnyEvent, None]:
        """Answer piece by piece; raises `NotReady` while there is no model."""
        async with aclosing(self._whole().stream(request, client)) as events:
            async for event in events:
                yield event

    async def health(self) -> ModelHealth:
        """Tell how the engine is doing."""
        return await self._task.health()

    def is_full_for(self, client: str) -> bool:
        """Whether the queue is full for a client."""
        return self._task.is_full_for(client)

    @property
    def asked(self) -> int:
        """How many requests have begun since it was opened."""
        return self._task.asked

    @property
    def is_progressing(self) -> bool:
        """Whether it is idle, or finishes steps."""
        return self._task.is_progressing

    @property
    def is_busy(self) -> bool:
        """Whether requests wait or run."""
        return self._task.is_busy

    @property
    def is_lost(self) -> bool:
        """Whether it is stuck or cannot be opened once too often in this process, or hangs while it is opened."""
        is_too_often = len(self._closing) >= MAX_STUCK or self._failed >= MAX_FAILED
        return not self.is_progressing and (self._hangs if self._is_opening else is_too_often)

    def reopen(self) -> None:
        """Begin to open the model anew, unless that has begun, or was done a moment ago."""
        may_open = not self._is_opening and len(self._closing) < MAX_STUCK
        if may_open and self._clock() >= self._open_again_at:
            logger.error("model %s makes no progress and is opened anew", self.manifest.name)
            self._opening_since = self._clock()
            self._opening = asyncio.create_task(self._reopen())

    async def close(self) -> None:
        """End what runs; what was stuck and has been replaced, or hangs, is left to itself."""
        if self._opening is not None:
            left_s = self._opening_since + HANGS_S - self._clock()
            await asyncio.wait([self._opening], timeout=max(0.0, left_s))
        if not self._is_opening:
            await self._task.close()

    @property
    def _is_opening(self) -> bool:
        return self._opening is not None and not self._opening.done()

    @property
    def _hangs(self) -> bool:
        return self._is_opening and self._clock() >= self._opening_since + HANGS_S

    def _whole(self) -> LocalTask:
        if not self._task.is_progressing:
            self.reopen()
            raise NotReady("the model failed and is opened anew; try again")
        return self._task

    async def _reopen(self) -> None:
        if self._left is not self._task:  # or the last opening failed, and it is being closed already
            self._left = self._task
            closing = asyncio.create_task(self._task.close())  # ends its requests, and then its threads if they return
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
        try:
            self._task = await asyncio.to_thread(self._load)
            self._failed, self._left = 0, None
        except PackageError:  # another process would not open it either, nor the others
            logger.exception("model %s could not be opened anew", self.manifest.name)
        except Exception:
            self._failed += 1
            logger.exception("model %s could not be opened anew", self.manifest.name)
        self._open_again_at = self._clock() + PAUSE_S


def reopen_failed(tasks: Sequence[LocalTask | ReopenedTask]) -> None:
    """Open anew the models of a process that make no progress, unless none of them does.

    A model that is lost is waited with until no other is at work for a moment. Then it is given up unless it is opened
    after all: Serve must hear so three times.
    """
    failing = [task for task in tasks if not task.is_progressing]
    if len(failing) == len(tasks):
        return
    is_idle = not any(task.is_busy for task in tasks if task not in failing)
    for task in failing:
        if isinstance(task, ReopenedTask):
            task.is_given_up = task.is_given_up or (task.is_lost and is_idle)
            task.reopen()


def must_be_replaced(tasks: Sequence[LocalTask | ReopenedTask]) -> bool:
    """Whether only another process can help: no model makes progress, as when there is just one, or one is given up."""
    failing = [task for task in tasks if not task.is_progressing]
    is_given_up = any(task.is_given_up for task in failing if isinstance(task, ReopenedTask))
    return bool(failing) and (len(failing) == len(tasks) or is_given_up)
