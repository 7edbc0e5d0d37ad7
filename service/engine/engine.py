"""The engine: one loop for generation and translation, schedule → run → update."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from itertools import islice
from pathlib import Path

from model.package import Manifest
from service.engine.admission import Admission, AdmissionLimits, Permit
from service.engine.beam_search import BeamParams
from service.engine.errors import EngineClosed, EngineFailed
from service.engine.isolation import ENDINGS, Failure
from service.engine.mailbox import Mailbox, Output
from service.engine.observer import Ending, Load, Observer, Silent
from service.engine.prefix_cache import BLOCK_TOKENS, PrefixCache
from service.engine.providers import Provider
from service.engine.reporting import Reporter
from service.engine.runner import Runner
from service.engine.sampling_params import SamplingParams
from service.engine.scheduler import Scheduler, SchedulerLimits
from service.engine.sequence import Sampling, Search, Sequence
from service.engine.session import SessionOptions
from service.engine.slots import slots_of
from service.engine.worker import Worker
from service.turns import Turn

logger = logging.getLogger(__name__)

# From here on a device's next step begins before the readers of the last are written to: 32 were 1.19 times as fast.
MANY_ROWS = 16


class Engine:
    """Sequences join and leave the running batch at every step; state lives on the event loop, steps in one thread."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        options: SessionOptions,
        limits: SchedulerLimits,
        observer: Observer | None = None,
        admission: AdmissionLimits | None = None,
    ) -> None:
        assert manifest.special_ids.end is not None and manifest.special_ids.start is not None
        self._start, self._end = manifest.special_ids.start, manifest.special_ids.end
        self._runner = Runner(folder, manifest, options, limits)
        block_bytes = BLOCK_TOKENS * self._runner.cache.bytes_per_token
        prefix_cache = PrefixCache(limits.prefix_cache_bytes // block_bytes)
        budget = self._runner.cache.budget
        self.scheduler = Scheduler(limits, prefix_cache, budget, takes_drafts=self._runner.takes_drafts)
        self.admission = Admission(admission or AdmissionLimits())
        self._runner.run_each_graph_once()
        self._worker = Worker(f"engine-{manifest.name}", self._work, self._runner.rest)
        self._observer = observer or Silent()
        self._observer.watch(self.load)
        self._reporter = Reporter(self._observer)

    @property
    def provider(self) -> Provider:
        """What computes the graphs."""
        return self._runner.provider

    @property
    def has_half_cache(self) -> bool:
        """Whether keys and values are kept in 16 bits."""
        return self._runner.cache.is_half

    def sequence(
        self,
        params: SamplingParams | BeamParams,
        prompt_ids: list[int] | None = None,
        source_ids: list[int] | None = None,
    ) -> Sequence:
        """Return a decoding of a prompt, or of a translation of a source, for `run`."""
        prompt_ids = prompt_ids or [self._start]
        if isinstance(params, BeamParams):
            return Sequence(prompt_ids, Search(params, self._end, prompt_ids), source_ids)
        return Sequence(prompt_ids, Sampling(params, prompt_ids, source_ids), source_ids)

    async def run(self, permit: Permit, sequences: Iterable[Sequence]) -> AsyncGenerator[tuple[Sequence, Output], None]:
        """Decode a request's sequences; yields their outputs as they come, the last of each with a finish reason.

        A sequence's `place` is its number among them. At most `max_slots` of them exist at a time. Closing the iterator
        ends those that still run, and their slots are free after the running step; `abort` ends a single one. Raises
        `EngineFailed` when a sequence fails, and `EngineClosed` when all do.
        """
        mailbox, places = Mailbox(), enumerate(sequences)
        running: dict[int, Sequence] = {}
        try:
            while True:
                for place, sequence in islice(places, self.scheduler.limits.max_slots - len(running)):
                    sequence.permit, sequence.mailbox, sequence.place = permit, mailbox, place
                    running[place] = sequence
                    self._add(sequence)
                if not running:
                    return
                outputs, turn = await mailbox.take(), Turn()
                for place, output in outputs.items():
                    await turn.give()
                    if place not in running:  # left over from before it was aborted
                        continue
                    sequence = running[place]
                    if output.finish_reason is not None:
                        self._reporter.tell_end(sequence, output.finish_reason)
                        if output.finish_reason == "error":
                            raise EngineClosed if self._worker.is_broken else EngineFailed
                        del running[place]
                    yield sequence, output
                # Forget those that the reader has ended. One that failed meanwhile stays: its error is in the mailbox.
                running = {place: sequence for place, sequence in running.items() if sequence.ending is None}
        finally:
            for sequence in running.values():
                self._drop(sequence, "abort")

    async def generate(
        self,
        params: SamplingParams | BeamParams,
        prompt_ids: list[int] | None = None,
        source_ids: list[int] | None = None,
    ) -> AsyncGenerator[Output, None]:
        """Decode a single sequence, as a request of its own; raises `Overloaded` before the first output too."""
        sequence = self.sequence(params, prompt_ids, source_ids)
        with self.admission.admit("", sequence.width, sequence.waiting_tokens) as permit:
            async with aclosing(self.run(permit, [sequence])) as outputs:
                async for _, output in outputs:
                    yield output

    def abort(self, sequence: Sequence) -> None:
        """End a sequence that has all its reader wanted."""
        self._drop(sequence, "stop")

    def _drop(self, sequence: Sequence, ending: Ending) -> None:
        self._reporter.tell_end(sequence, ending)
        self.scheduler.abort(sequence)
        self._worker.wake()

    def _add(self, sequence: Sequence) -> None:
        if self._worker.is_broken:
            raise EngineClosed
        self.scheduler.add(sequence)
        self._worker.wake()

    def load(self) -> Load:
        """Tell how much there is to do."""
        scheduler = self.scheduler
        prefixes = scheduler.prefix_cache
        return Load(
            running=len(scheduler.running),
            waiting=self.admission.waiting_slots,
            queued_tokens=self.admission.waiting_tokens,
            slots_used=scheduler.slots_used,
            prefix_queried=prefixes.queried_tokens,
            prefix_hit=prefixes.hit_tokens,
            kv_bytes=self._runner.cache.used_bytes,
            kv_capacity_bytes=self._runner.cache.capacity_bytes,
            stalled_s=self._worker.stalled_s(),
        )

    def is_progressing(self, patience_s: float) -> bool:
        """Whether the engine is whole, and idle or has finished a step within the last `patience_s` seconds."""
        return self._worker.is_progressing(patience_s)

    async def close(self) -> None:
        """End all sequences at once, the loop after the running step, and free the thread."""
        self._observer.unwatch()
        self.scheduler.fail_all()
        await self._worker.close()

    async def _work(self) -> None:
        try:
            while (batch := self.scheduler.schedule()) is not None:
                started, padded = time.perf_counter(), self._runner.prefilled_tokens
                rows = len(slots_of(batch.sequences))
                is_on_device = self._runner.is_on_device
                yields = not is_on_device and self.scheduler.may_wait(batch)
                first = is_on_device and rows >= MANY_ROWS
                results = await self._worker.run(self._runner.run, batch, yields=yields, first=first)
                self.scheduler.update(batch, results, time.perf_counter() - started)
                self._reporter.tell(batch, results, rows, self._runner.prefilled_tokens - padded, started)
                goes_on = any(sequence.slots and not sequence.is_aborted for sequence in self.scheduler.running)
                if not goes_on and all(isinstance(result, Failure) for result in results):
                    await self._worker.run(lambda _: self._runner.run_each_graph_once(), None)
        except ENDINGS:
            raise
        except BaseException:  # a library's may be none of `Exception`
            # The runner answers for who makes the graphs fail. Whatever else fails is a bug, after which no state can
            # be trusted, or graphs that can compute nothing any more, as when a device is lost.
            logger.exception("the engine's loop failed; all sequences end, and the replica asks to be replaced")
            self._worker.is_broken = True
            self.scheduler.fail_all()
