"""One-shot batching: whatever waits runs together the moment the session is free, within a token budget."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from model.package import Manifest
from service.engine.engine import EngineFailed
from service.engine.inputs import ImageInput, OneShotInput, TextInput, collate
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

    @property
    def tokens(self) -> int:
        return self.input.tokens


class Batcher:
    """An encoder's session and the queue before it. There is no timer: an idle session starts at once.

    `real_tokens` of all `padded_tokens` that ran were the inputs' own.
    """

    def __init__(self, folder: Path, manifest: Manifest, options: SessionOptions, limits: BatcherLimits) -> None:
        self.limits = limits
        graph = manifest.graphs["encoder"]
        self._session = Session(folder / graph.file, options)
        self._outputs = graph.outputs
        self._pad = manifest.special_ids.pad
        self._waiting: deque[_Item] = deque()
        self._waiting_tokens = 0
        self.real_tokens = 0
        self.padded_tokens = 0
        self._compute([_example(manifest)])  # a first run is slow: before there is a client, not for one
        self._worker = Worker(f"batcher-{manifest.name}", self._work)

    @property
    def waiting_sequences(self) -> int:
        """How many inputs wait."""
        return len(self._waiting)

    @property
    def slots_used(self) -> int:
        """None: a one-shot task keeps nothing from step to step."""
        return 0

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

    def is_progressing(self, patience_s: float) -> bool:
        """Whether the batcher is idle or has finished a batch within the last `patience_s` seconds."""
        return self._worker.is_progressing(patience_s)

    async def close(self) -> None:
        """Finish what waits and free the thread."""
        await self._worker.close()

    async def _work(self) -> None:
        while batch := self._next_batch():
            try:
                rows = await self._worker.run(self._compute, [item.input for item in batch])
            except Exception:
                logger.exception("a batch failed")
                for item in batch:
                    if not item.answer.done():
                        item.answer.set_exception(EngineFailed())
                continue
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
        self.real_tokens += sum(item.tokens for item in batch)
        self.padded_tokens += max(item.tokens for item in batch) * len(batch)
        return batch

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
