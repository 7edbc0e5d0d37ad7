"""The engine: one loop for generation and translation, schedule → run → update."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from model.package import Manifest
from service.engine.beam_search import BeamParams
from service.engine.observer import Load, Observer, Silent, Step
from service.engine.prefix_cache import BLOCK_TOKENS, PrefixCache
from service.engine.runner import Runner
from service.engine.sampling import SamplingParams
from service.engine.scheduler import Batch, Prefill, Scheduler, SchedulerLimits
from service.engine.sequence import Output, Sampling, Search, Sequence
from service.engine.session import SessionOptions
from service.engine.worker import Worker

logger = logging.getLogger(__name__)


class EngineFailed(Exception):
    """A step failed; its sequences have ended, and the engine goes on with new ones."""


class Engine:
    """Sequences join and leave the running batch at every step; state lives on the event loop, steps in one thread."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        options: SessionOptions,
        limits: SchedulerLimits,
        observer: Observer | None = None,
    ) -> None:
        assert manifest.special_ids.end is not None and manifest.special_ids.start is not None
        self._start, self._end = manifest.special_ids.start, manifest.special_ids.end
        self._runner = Runner(folder, manifest, options, limits)
        block_bytes = BLOCK_TOKENS * self._runner.cache.bytes_per_token
        self.scheduler = Scheduler(limits, PrefixCache(limits.prefix_cache_bytes // block_bytes))
        self._runner.warm_up()
        self._worker = Worker(f"engine-{manifest.name}", self._work)
        self._last_decode_at: float = -1.0
        self._observer = observer or Silent()
        self._observer.watch(self.load)

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
        self._worker.wake()
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
            self._worker.wake()

    @property
    def is_full(self) -> bool:
        """Whether the queue would refuse any sequence."""
        return self.scheduler.is_full

    def load(self) -> Load:
        """Tell how much there is to do."""
        scheduler = self.scheduler
        prefixes = scheduler.prefix_cache
        return Load(
            running=len(scheduler.running),
            waiting=scheduler.waiting_sequences,
            queued_tokens=scheduler.waiting_tokens,
            slots_used=scheduler.slots_used,
            prefix_queried=prefixes.queried_tokens,
            prefix_hit=prefixes.hit_tokens,
        )

    def is_progressing(self, patience_s: float) -> bool:
        """Whether the engine is idle or has finished a step within the last `patience_s` seconds."""
        return self._worker.is_progressing(patience_s)

    async def close(self) -> None:
        """End the loop after the running step and free the thread."""
        for sequence in self.scheduler.abort_all():
            sequence.mailbox.put(Output(finish_reason="error"))
        await self._worker.close()

    async def _work(self) -> None:
        while True:
            try:
                batch = self.scheduler.schedule()
                if batch is None:
                    return
                started, padded = time.perf_counter(), self._runner.prefilled_tokens
                rows = sum(len(sequence.slots) for sequence in _sequences(batch))
                self.scheduler.update(batch, await self._worker.run(self._runner.run, batch))
                self._tell(batch, rows, self._runner.prefilled_tokens - padded, started)
            except Exception:
                logger.exception("a step failed; the running sequences end, or all if none runs")
                for sequence in self.scheduler.abort_running() or self.scheduler.abort_all():
                    sequence.mailbox.put(Output(finish_reason="error"))

    def _tell(self, batch: Batch, rows: int, prefilled: int, started: float) -> None:
        """Tell the observer of a step of so many rows, which computed `prefilled` tokens, padding included."""
        ended = time.perf_counter()
        if isinstance(batch, Prefill):
            tokens = sum(chunk.tokens + len(chunk.sequence.source_ids or ()) for chunk in batch.chunks)
            for sequence in _sequences(batch):
                if sequence.admitted_at is None:
                    sequence.admitted_at = started
                    self._observer.admitted(started - sequence.arrived_at, sequence.waiting_tokens)
            self._observer.stepped(Step("prefill", ended - started, rows, tokens, max(tokens, prefilled)))
            return
        together = 0
        for sequence in batch.sequences:
            before, sequence.last_token_at = sequence.last_token_at, ended
            if before is self._last_decode_at:  # as of most, so that they can be told together
                together += 1
            elif before is None:
                self._observer.began(ended - sequence.arrived_at)
            else:
                self._observer.went_on(ended - before)
        if together:
            self._observer.went_on(ended - self._last_decode_at, together)
        self._last_decode_at = ended
        self._observer.stepped(Step("decode", ended - started, rows, rows, rows))


def _sequences(batch: Batch) -> list[Sequence]:
    if isinstance(batch, Prefill):
        return [sequence for chunk in batch.chunks for sequence in (chunk.sequence, *chunk.sharers)]
    return batch.sequences
