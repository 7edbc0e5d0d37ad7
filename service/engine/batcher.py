"""One-shot batching: whatever waits runs together the moment the session is free, within a token budget."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from model.package import Manifest
from model.package.inputs import encoder_inputs, pad_rows
from service.engine.engine import EngineFailed
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
    ids: list[int]
    segment_ids: list[int]
    answer: asyncio.Future[Array]


class Batcher:
    """An encoder's session and the queue before it. There is no timer: an idle session starts at once.

    `real_tokens` of all `padded_tokens` that ran were the texts' own.
    """

    def __init__(self, folder: Path, manifest: Manifest, options: SessionOptions, limits: BatcherLimits) -> None:
        self.limits = limits
        self._session = Session(folder / manifest.graphs["encoder"].file, options)
        self._pad = manifest.special_ids.pad
        self._waiting: deque[_Item] = deque()
        self._waiting_tokens = 0
        self.real_tokens = 0
        self.padded_tokens = 0
        self._compute([([self._pad] * 2, [0] * 2)])  # a first run is slow: before there is a client, not for one
        self._worker = Worker(f"batcher-{manifest.name}", self._work)

    @property
    def waiting_sequences(self) -> int:
        """How many inputs wait."""
        return len(self._waiting)

    @property
    def slots_used(self) -> int:
        """None: a one-shot task keeps nothing from step to step."""
        return 0

    async def run(self, inputs: list[tuple[list[int], list[int]]]) -> list[Array]:
        """Return the logits (num_labels,) of each input, its ids and segment ids; all of them or none are queued.

        Raises `Overloaded` when the queue is full, `EngineFailed` when the batch fails. Inputs of a caller that is
        cancelled are skipped.
        """
        tokens = self._waiting_tokens + sum(len(ids) for ids, _ in inputs)
        sequences = len(self._waiting) + len(inputs)
        if self._waiting and (sequences > self.limits.max_waiting_sequences or tokens > self.limits.max_waiting_tokens):
            raise Overloaded
        loop = asyncio.get_running_loop()
        items = [_Item(ids, segment_ids, loop.create_future()) for ids, segment_ids in inputs]
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
                logits = await self._worker.run(self._compute, [(item.ids, item.segment_ids) for item in batch])
            except Exception:
                logger.exception("a batch failed")
                for item in batch:
                    if not item.answer.done():
                        item.answer.set_exception(EngineFailed())
                continue
            for item, row in zip(batch, logits, strict=True):
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
        by_likeness = sorted(waiting, key=lambda item: abs(len(item.ids) - len(oldest.ids)))
        batch: list[_Item] = []
        longest = 0
        for item in by_likeness:
            longest = max(longest, len(item.ids))
            if batch and longest * (len(batch) + 1) > self.limits.batch_tokens:
                break
            batch.append(item)
        chosen = set(map(id, batch))
        self._waiting = deque(item for item in waiting if id(item) not in chosen)
        self._waiting_tokens = sum(len(item.ids) for item in self._waiting)
        self.real_tokens += sum(len(item.ids) for item in batch)
        self.padded_tokens += max(len(item.ids) for item in batch) * len(batch)
        return batch

    def _compute(self, batch: list[tuple[list[int], list[int]]]) -> Array:
        """Return the logits (B, num_labels) of ids and segment ids."""
        ids, lengths = pad_rows([ids for ids, _ in batch], self._pad)
        segment_ids, _ = pad_rows([segment_ids for _, segment_ids in batch], 0)
        (logits,) = self._session.run(encoder_inputs(ids, lengths, segment_ids), ["logits"])
        return np.asarray(logits)
