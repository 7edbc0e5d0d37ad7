"""One-shot batching: whatever waits runs together the moment the session is free, within a token budget."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from model.package import Manifest
from service.engine.engine import EngineFailed
from service.engine.inputs import ImageInput, OneShotInput, TextInput, collate
from service.engine.observer import Load, Observer, Silent, Step
from service.engine.scheduler import Overloaded
from service.engine.session import Array, Session, SessionOptions
from service.engine.worker import Worker

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BatcherLimits:
    """Bounds of one batch and of what waits, in tokens; a batch counts padded."""

    batch_tokens: int = 1024  # larger ones are no faster, and waste more on padding
    max_waiting_sequences: int = 1024
    max_waiting_tokens: int = 262144


@dataclass(eq=False)
class _Item:
    input: OneShotInput
    answer: asyncio.Future[Array]
    arrived_at: float = field(default_factory=time.perf_counter)

    @property
    def tokens(self) -> int:
        return self.input.tokens


class Batcher:
    """An encoder's session and the queue before it. There is no timer: an idle session starts at once."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        options: SessionOptions,
        limits: BatcherLimits,
        observer: Observer | None = None,
    ) -> None:
        self.limits = limits
        graph = manifest.graphs["encoder"]
        self._session = Session(folder / graph.file, options)
        self._outputs = graph.outputs
        self._pad = manifest.special_ids.pad
        self._waiting: deque[_Item] = deque()
        self._waiting_tokens = 0
        self._compute([_example(manifest)])  # a first run is slow: before there is a client, not for one
        self._worker = Worker(f"batcher-{manifest.name}", self._work)
        self._observer = observer or Silent()
        self._observer.watch(self.load)

    async def run(self, inputs: Sequence[OneShotInput]) -> list[Array]:
        """Return the logits (num_labels,) or the vector (d_model,) of each input; all of them or none are queued.

        Raises `Overloaded` when the queue is full, `EngineFailed` when the batch fails. Inputs of a caller that is
        cancelled are skipped.
        """
        tokens = self._waiting_tokens + sum(item.tokens for item in inputs)
        sequences = len(self._waiting) + len(inputs)
        if self._waiting and (sequences > self.limits.max_waiting_sequences or tokens > self.limits.max_waiting_tokens):
            raise Overloaded
        loop = asyncio.get_running_loop()
        items = [_Item(each, loop.create_future()) for each in inputs]
        self._waiting += items
        self._waiting_tokens = tokens
        self._worker.wake()
        try:
            return await asyncio.gather(*(item.answer for item in items))
        finally:
            for item in items:
                item.answer.cancel()  # no-op for those that are answered

    @property
    def is_full(self) -> bool:
        """Whether the queue would refuse any input."""
        limits = self.limits
        return len(self._waiting) >= limits.max_waiting_sequences or self._waiting_tokens >= limits.max_waiting_tokens

    def load(self) -> Load:
        """Tell how much there is to do."""
        return Load(running=0, waiting=len(self._waiting), queued_tokens=self._waiting_tokens, slots_used=0)

    def is_progressing(self, patience_s: float) -> bool:
        """Whether the batcher is idle or has finished a batch within the last `patience_s` seconds."""
        return self._worker.is_progressing(patience_s)

    async def close(self) -> None:
        """Finish what waits and free the thread."""
        await self._worker.close()

    async def _work(self) -> None:
        while batch := self._next_batch():
            started = time.perf_counter()
            try:
                rows = await self._worker.run(self._compute, [item.input for item in batch])
            except Exception:
                logger.exception("a batch failed")
                for item in batch:
                    if not item.answer.done():
                        item.answer.set_exception(EngineFailed())
                continue
            self._tell(batch, started)
            for item, row in zip(batch, rows, strict=True):
                if not item.answer.done():
                    item.answer.set_result(row)

    def _next_batch(self) -> list[_Item]:
        """Take the oldest input, and with it those of most similar length that fit the budget with it."""
        waiting = [item for item in self._waiting if not item.answer.cancelled()]
        if not waiting:
            self._waiting.clear()
            self._waiting_tokens = 0
            return []
        oldest = waiting[0]
        by_likeness = sorted(waiting, key=lambda item: abs(item.tokens - oldest.tokens))
        batch: list[_Item] = []
        longest = 0
        for item in by_likeness:
            longest = max(longest, item.tokens)
            if batch and longest * (len(batch) + 1) > self.limits.batch_tokens:
                break
            batch.append(item)
        chosen = set(map(id, batch))
        self._waiting = deque(item for item in waiting if id(item) not in chosen)
        self._waiting_tokens = sum(item.tokens for item in self._waiting)
        return batch

    def _tell(self, batch: list[_Item], started: float) -> None:
        """Tell the observer of a batch that has run."""
        tokens, longest = sum(item.tokens for item in batch), max(item.tokens for item in batch)
        for item in batch:
            self._observer.admitted(started - item.arrived_at, item.tokens)
        seconds = time.perf_counter() - started
        self._observer.stepped(Step("encode", seconds, len(batch), tokens, longest * len(batch)))

    def _compute(self, batch: list[OneShotInput]) -> Array:
        """Return the graph's answer for each input, (B, num_labels) or (B, d_model)."""
        (rows,) = self._session.run(collate(batch, self._pad), self._outputs)
        return np.asarray(rows)


def _example(manifest: Manifest) -> OneShotInput:
    """Return something small to run."""
    image = manifest.image
    if image is None:
        return TextInput([manifest.special_ids.pad] * 2, [0] * 2)
    return ImageInput(np.zeros((image.channels, image.size, image.size), np.float32), tokens=1)
