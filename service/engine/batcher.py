"""One-shot batching: whatever waits runs together the moment the session is free, within a token budget."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from model.package import Manifest
from service.engine.admission import Admission, AdmissionLimits, Permit
from service.engine.errors import EngineFailed
from service.engine.inputs import ImageInput, OneShotInput, TextInput, collate
from service.engine.isolation import Failure, isolated
from service.engine.memory import trim_heap
from service.engine.observer import Load, Observer, Silent, Step
from service.engine.session import Array, Session, SessionOptions
from service.engine.waiting import WaitingQueue
from service.engine.worker import Worker

logger = logging.getLogger(__name__)


BATCH_TOKENS = 1024  # padded; larger batches are no faster, and waste more on padding


@dataclass(eq=False)
class _Item:
    input: OneShotInput
    permit: Permit
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
        batch_tokens: int = BATCH_TOKENS,
        observer: Observer | None = None,
        admission: AdmissionLimits | None = None,
    ) -> None:
        self._batch_tokens = batch_tokens
        self.admission = Admission(admission or AdmissionLimits())
        graph = manifest.graphs["encoder"]
        self._session = Session(folder / graph.file, options)
        self._inputs, self._outputs = graph.inputs, graph.outputs
        self._pad = manifest.special_ids.pad
        self._waiting: WaitingQueue[_Item] = WaitingQueue()
        self._running: list[_Item] = []
        self._example = _example(manifest)
        # A first run is slow: before there is a client, not for one.
        (row,) = self._compute([self._example])
        self.width = row.shape[-1]  # of each input's answer: labels, dimensions or the vocabulary
        self._worker = Worker(f"batcher-{manifest.name}", self._work, self._rest)
        self._observer = observer or Silent()
        self._observer.watch(self.load)

    async def run(self, permit: Permit, inputs: Sequence[OneShotInput]) -> list[Array]:
        """Return the answer to each of a request's inputs, as the model gives it.

        That is logits (num_labels,); a vector (d_model,); where tokens have labels, logits (T, num_labels); where words
        are missing, logits (P, vocab_size). T and P are those of the batch's largest input: what is behind an input's
        own is padding. Raises `EngineFailed` when the graph fails on one of them. Inputs of a caller that is cancelled
        are skipped.
        """
        if self._worker.is_broken:
            raise EngineFailed
        loop = asyncio.get_running_loop()
        items = [_Item(each, permit, loop.create_future()) for each in inputs]
        for item in items:
            self._waiting.add(item)
        self._worker.wake()
        try:
            return await asyncio.gather(*(item.answer for item in items))
        finally:
            for item in items:
                item.answer.cancel()  # no-op for those that are answered
                self._waiting.remove(item)

    def load(self) -> Load:
        """Tell how much there is to do."""
        admission = self.admission
        waiting, tokens = admission.waiting_slots, admission.waiting_tokens
        return Load(running=len(self._running), waiting=waiting, queued_tokens=tokens, slots_used=0)

    def is_progressing(self, patience_s: float) -> bool:
        """Whether the batcher is whole, and idle or has finished a batch within the last `patience_s` seconds."""
        return self._worker.is_progressing(patience_s)

    async def close(self) -> None:
        """Finish what waits and free the thread."""
        await self._worker.close()

    async def _work(self) -> None:
        try:
            while batch := self._next_batch():
                started, self._running = time.perf_counter(), batch
                rows = await self._worker.run(self._compute_isolated, batch)
                self._running = []
                for item, row in zip(batch, rows, strict=True):
                    _settle(item, row)
                self._tell(batch, started)
        except Exception as error:
            # The graph's own failures are isolated; whatever else fails is a bug, after which nothing can be trusted.
            logger.exception("the batcher's loop failed; all inputs end, and the replica asks to be replaced")
            self._worker.is_broken = True
            for item in [*self._running, *self._waiting.in_turn()]:
                _settle(item, Failure(error))
            self._running = []

    def _next_batch(self) -> list[_Item]:
        """Take the input whose turn it is, and with it those of most similar length that fit the budget with it."""
        waiting = [item for item in self._waiting.in_turn() if not item.answer.cancelled()]
        batch: list[_Item] = []
        longest = 0
        for item in sorted(waiting, key=lambda item: abs(item.tokens - waiting[0].tokens)):
            longest = max(longest, item.tokens)
            if batch and longest * (len(batch) + 1) > self._batch_tokens:
                break
            batch.append(item)
        for item in batch:
            self._waiting.take(item)
            item.permit.begin(1, item.tokens)
        return batch

    def _tell(self, batch: list[_Item], started: float) -> None:
        """Tell the observer of a batch that has run."""
        tokens, longest = sum(item.tokens for item in batch), max(item.tokens for item in batch)
        for item in batch:
            self._observer.admitted(started - item.arrived_at, item.tokens)
        seconds = time.perf_counter() - started
        self._observer.stepped(Step("encode", seconds, len(batch), tokens, longest * len(batch)))

    def _compute_isolated(self, batch: Sequence[_Item]) -> list[Array | Failure]:
        return isolated(self._compute, [item.input for item in batch])

    def _compute(self, batch: Sequence[OneShotInput]) -> list[Array]:
        """Return the graph's answer for each input."""
        (rows,) = self._session.run(collate(batch, self._pad, self._inputs), self._outputs)
        return list(np.asarray(rows))

    def _rest(self) -> None:
        """Give memory back while nothing runs."""
        with self._session.shrinking():
            self._compute([self._example])
        trim_heap()


def _settle(item: _Item, row: Array | Failure) -> None:
    if item.answer.done():  # nobody waits any more
        return
    if isinstance(row, Failure):
        item.answer.set_exception(EngineFailed())
    else:
        item.answer.set_result(row)


def _example(manifest: Manifest) -> OneShotInput:
    """Return something small to run."""
    image = manifest.image
    if image is None:
        return TextInput([manifest.special_ids.pad] * 2, [0] * 2, places=[0] if manifest.task == "fill" else [])
    return ImageInput(np.zeros((image.channels, image.size, image.size), np.float32), tokens=1)
