"""The engine: one loop for generation and translation, schedule → run → update."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from model.package import Manifest
from service.engine.beam_search import BeamParams
from service.engine.runner import Runner
from service.engine.sampling import SamplingParams
from service.engine.scheduler import Scheduler, SchedulerLimits
from service.engine.sequence import Output, Sampling, Search, Sequence
from service.engine.session import SessionOptions

logger = logging.getLogger(__name__)


class EngineFailed(Exception):
    """A step failed; its sequences have ended, and the engine goes on with new ones."""


class Engine:
    """Sequences join and leave the running batch at every step; state lives on the event loop, steps in one thread."""

    def __init__(self, folder: Path, manifest: Manifest, options: SessionOptions, limits: SchedulerLimits) -> None:
        assert manifest.special_ids.end is not None and manifest.special_ids.start is not None
        self.scheduler = Scheduler(limits)
        self._start, self._end = manifest.special_ids.start, manifest.special_ids.end
        self._runner = Runner(folder, manifest, options, limits)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"engine-{manifest.name}")
        self._loop: asyncio.Task[None] | None = None
        self._last_step = time.monotonic()

    async def generate(
        self,
        params: SamplingParams | BeamParams,
        prompt_ids: list[int] | None = None,
        source_ids: list[int] | None = None,
    ) -> AsyncGenerator[Output, None]:
        """Decode a prompt, or a translation of a source; yields outputs as they come, the last with a finish reason.

        Closing the iterator early ends the sequence, and its slots are free after the running step. Raises
        `Overloaded` before the first output when the queue is full, `EngineFailed` when a step fails.
        """
        prompt_ids = prompt_ids or [self._start]
        if isinstance(params, BeamParams):
            sequence = Sequence(prompt_ids, Search(params, self._end), source_ids)
        else:
            sequence = Sequence(prompt_ids, Sampling(params, prompt_ids), source_ids)
        self.scheduler.add(sequence)
        self._wake()
        try:
            while True:
                output = await sequence.mailbox.take()
                if output.finish_reason == "error":
                    raise EngineFailed
                yield output
                if output.finish_reason is not None:
                    return
        finally:
            self.scheduler.abort(sequence)
            self._wake()

    @property
    def waiting_sequences(self) -> int:
        """How many sequences wait for admission."""
        return self.scheduler.waiting_sequences

    @property
    def slots_used(self) -> int:
        """How many slots running sequences hold or are promised."""
        return self.scheduler.slots_used

    def is_progressing(self, patience_s: float) -> bool:
        """Whether the engine is idle or has finished a step within the last `patience_s` seconds."""
        is_idle = self._loop is None or self._loop.done()
        return is_idle or time.monotonic() - self._last_step < patience_s

    async def close(self) -> None:
        """End the loop after the running step and free the thread."""
        for sequence in self.scheduler.abort_all():
            sequence.mailbox.put(Output(finish_reason="error"))
        if self._loop is not None:
            await self._loop
        self._thread.shutdown()

    def _wake(self) -> None:
        """Start the loop if it sleeps: it lives as long as there is work."""
        if self._loop is None or self._loop.done():
            self._last_step = time.monotonic()
            self._loop = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while (batch := self.scheduler.schedule()) is not None:
            try:
                choices = await loop.run_in_executor(self._thread, self._runner.run, batch)
            except Exception:
                logger.exception("a step failed; all running and waiting sequences end")
                for sequence in self.scheduler.abort_all():
                    sequence.mailbox.put(Output(finish_reason="error"))
                continue
            self.scheduler.update(batch, choices)
            self._last_step = time.monotonic()
