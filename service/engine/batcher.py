"""One-shot batching: whatever waits runs together the moment there is a thread for it, within a token budget.

A request of more than a batch is long, and waits and runs in a lane of its own, whose thread yields to all others where
cores are short. So short requests, of this model and of its neighbours, do not wait behind a book.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from model.package import Manifest
from model.package.heap import trim_heap
from service.engine.admission import Admission, AdmissionLimits, Permit
from service.engine.arrays import Array
from service.engine.errors import EngineClosed, EngineFailed
from service.engine.fastest import fastest_session, packed_if_faster
from service.engine.inputs import ImageInput, OneShotInput, TextInput, collate
from service.engine.isolation import ENDINGS, Failure, isolated
from service.engine.observer import Load, Observer, Silent, Step
from service.engine.providers import Provider
from service.engine.session import Session, SessionOptions
from service.engine.waiting import WaitingQueue
from service.engine.worker import REST_S, Worker

logger = logging.getLogger(__name__)


BATCH_TOKENS = 1024  # padded; on a processor larger batches are no faster, and waste more on padding
BATCH_TOKENS_ON_DEVICE = 8192  # 64 texts of 128 tokens, as a device's speed is measured with
# Of sparse vectors, whose graph has the logits of all words for each token: 128 MB, on a device half a gigabyte.
LOGITS, LOGITS_ON_DEVICE = 2**25, 2**28
MEASURED = ((1, 16), (1, 128), (8, 64))  # rows and tokens of what graphs are compared by
MEASURED_ON_DEVICE = (*MEASURED, (64, 128))


@dataclass(eq=False)
class _Item:
    input: OneShotInput
    permit: Permit
    answer: asyncio.Future[Array]
    arrived_at: float = field(default_factory=time.perf_counter)
    cost: int = field(init=False)

    def __post_init__(self) -> None:
        self.cost = self.input.cost


class Batcher:
    """An encoder's session and the queues before it. There is no timer: an idle lane starts at once."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        options: SessionOptions,
        batch_tokens: int | None = None,
        observer: Observer | None = None,
        admission: AdmissionLimits | None = None,
        *,
        exact: bool = True,
    ) -> None:
        """Open a package's encoder; one that need not be `exact` may be computed by OpenVINO, if that is faster.

        A device's answers depend on the batch in any case, so there the faster attention is taken. `batch_tokens` is
        the most padded tokens of a batch; None: what suits the device or the processor.
        """
        self.admission = Admission(admission or AdmissionLimits())
        graph = manifest.graphs["encoder"]
        self._inputs, self._outputs = graph.inputs, graph.outputs
        self._pad = manifest.special_ids.pad
        self._ran_at = -REST_S
        # Of a request, which is no short one if it has more, and of a batch.
        self._short_tokens, self._batch_tokens = _budgets(manifest, batch_tokens, BATCH_TOKENS, LOGITS)
        self._session = self._opened(folder / graph.file, manifest, options, exact=exact)
        if self._session.provider == "cuda":
            budgets = _budgets(manifest, batch_tokens, BATCH_TOKENS_ON_DEVICE, LOGITS_ON_DEVICE)
            self._short_tokens, self._batch_tokens = budgets
            self._session = self._packed_if_faster(self._session, folder / graph.file, manifest, options)
        self._example = _example(manifest)
        # A first run is slow: before there is a client, not for one.
        with self._session.shrinking():
            (row,) = self._compute([self._example])
        self.width = row.shape[-1]  # of each input's answer: labels, dimensions or the vocabulary
        self._short = _Lane(self, f"batcher-{manifest.name}")
        self._long = _Lane(self, f"batcher-{manifest.name}-long", yields=True)
        self._observer = observer or Silent()
        self._observer.watch(self.load)

    @property
    def provider(self) -> Provider:
        """What computes the graph."""
        return self._session.provider

    def _opened(self, path: Path, manifest: Manifest, options: SessionOptions, *, exact: bool) -> Session:
        if exact:
            return Session(path, options)
        return fastest_session(path, options, self._measured(manifest, MEASURED), self._outputs, manifest.name)

    def _packed_if_faster(self, own: Session, path: Path, manifest: Manifest, options: SessionOptions) -> Session:
        batches = self._measured(manifest, MEASURED_ON_DEVICE)
        return packed_if_faster(own, path, options, batches, self._outputs, manifest.name)

    def _measured(self, manifest: Manifest, shapes: Sequence[tuple[int, int]]) -> list[dict[str, Array]]:
        batches = _example_batches(manifest, self._batch_tokens, shapes)
        return [collate(batch, self._pad, self._inputs) for batch in batches]

    async def run(self, permit: Permit, inputs: Sequence[OneShotInput], cost: int | None = None) -> list[Array]:
        """Return the answer to each of a request's inputs, as the model gives it.

        An answer is logits (num_labels,); a vector, as wide as the head makes it, or (vocab_size,) if it is sparse;
        where tokens have labels, logits (T, num_labels); where words are missing, logits (P, vocab_size). T and P are
        those of the batch's largest input: what is behind an input's own is padding. `cost` is that of the whole
        request, if these are a part of it, and decides whether it runs in the short or the long lane; None: the sum of
        the inputs' costs.
        Raises `EngineFailed` when the graph fails on one of them, and `EngineClosed` when all fail. Inputs of a caller
        that is cancelled are skipped.
        """
        if self._is_broken:
            raise EngineClosed
        cost = sum(each.cost for each in inputs) if cost is None else cost
        lane = self._long if cost > self._short_tokens else self._short
        return await lane.run(permit, inputs)

    def load(self) -> Load:
        """Tell how much there is to do."""
        admission = self.admission
        waiting, tokens = admission.waiting_slots, admission.waiting_tokens
        running = len(self._short.running) + len(self._long.running)
        stalled_s = max(lane.worker.stalled_s() for lane in (self._short, self._long))
        return Load(running=running, waiting=waiting, queued_tokens=tokens, slots_used=0, stalled_s=stalled_s)

    def is_progressing(self, patience_s: float) -> bool:
        """Whether the batcher is whole, and each lane idle or through with a batch in the last `patience_s` seconds."""
        return all(lane.worker.is_progressing(patience_s) for lane in (self._short, self._long))

    async def close(self) -> None:
        """End all inputs at once, the lanes after the running batches, and free the threads."""
        self._observer.unwatch()
        await asyncio.gather(self._short.close(), self._long.close())

    @property
    def _is_broken(self) -> bool:
        return self._short.worker.is_broken or self._long.worker.is_broken

    def next_batch(self, queue: WaitingQueue[_Item]) -> list[_Item]:
        """Take the input whose turn it is, and with it those of most similar length that fit the budget with it."""
        waiting = [item for item in queue.in_turn() if not item.answer.done()]  # whose caller waits
        batch: list[_Item] = []
        dearest = 0
        for item in sorted(waiting, key=lambda item: abs(item.cost - waiting[0].cost)):
            dearest = max(dearest, item.cost)
            if batch and dearest * (len(batch) + 1) > self._batch_tokens:
                break
            batch.append(item)
        begun: defaultdict[Permit, list[int]] = defaultdict(list)
        for item in batch:
            queue.take(item)
            begun[item.permit].append(item.cost)
            item.permit.spending.tokens += item.input.tokens
        for permit, costs in begun.items():
            permit.begin(len(costs), sum(costs))
        return batch

    def tell(self, batch: list[_Item], started: float) -> None:
        """Tell the observer of a batch that has run."""
        counts = [item.input.tokens for item in batch]
        for item, tokens in zip(batch, counts, strict=True):
            self._observer.admitted(started - item.arrived_at, tokens)
        seconds = time.perf_counter() - started
        self._observer.stepped(Step("encode", seconds, len(batch), sum(counts), max(counts) * len(batch)))

    def compute(self, batch: Sequence[_Item]) -> list[Array | Failure]:
        """Return the graph's answer for each item; raises what the graph raises if it can compute nothing any more."""
        try:
            answers = isolated(self._compute, [item.input for item in batch])
            if all(isinstance(answer, Failure) for answer in answers):
                self._compute([self._example])
            return answers
        finally:
            self._ran_at = time.monotonic()

    def _compute(self, batch: Sequence[OneShotInput]) -> list[Array]:
        with self._session.turn:
            (rows,) = self._session.run(collate(batch, self._pad, self._inputs), self._outputs)
        return list(np.asarray(rows))

    def rest(self) -> None:
        """Give memory back while nothing runs; of two lanes, the one that has run last does."""
        is_running = self._short.running or self._long.running
        if is_running or time.monotonic() - self._ran_at < REST_S:
            return
        with self._session.shrinking():
            self._compute([self._example])
        trim_heap()


class _Lane:
    """A queue, and the thread that runs what waits in it."""

    def __init__(self, batcher: Batcher, name: str, *, yields: bool = False) -> None:
        self._batcher: Batcher = weakref.proxy(batcher)  # which holds this lane: see `Worker.close`
        self._yields = yields
        self._waiting: WaitingQueue[_Item] = WaitingQueue()
        self.running: list[_Item] = []
        self.worker = Worker(name, self._work, batcher.rest)

    async def run(self, permit: Permit, inputs: Sequence[OneShotInput]) -> list[Array]:
        loop = asyncio.get_running_loop()
        items = [_Item(each, permit, loop.create_future()) for each in inputs]
        for item in items:
            self._waiting.add(item)
        self.worker.wake()
        try:
            return await asyncio.gather(*(item.answer for item in items))
        finally:
            for item in items:
                item.answer.cancel()  # no-op for those that are answered
                self._waiting.remove(item)

    async def close(self) -> None:
        """Fail what waits and what runs, and free the thread."""
        self._fail_all()
        await self.worker.close()

    async def _work(self) -> None:
        try:
            while batch := self._batcher.next_batch(self._waiting):
                started, self.running = time.perf_counter(), batch
                rows = await self.worker.run(self._batcher.compute, batch, yields=self._yields)
                self.running = []
                for item, row in zip(batch, rows, strict=True):
                    _resolve(item, row)
                self._batcher.tell(batch, started)
        except ENDINGS:
            raise
        except BaseException:  # a library's may be none of `Exception`
            # Who makes the graph fail is isolated. Whatever else fails is a bug, after which nothing can be trusted, or
            # a graph that can compute nothing any more, as when a device is lost.
            logger.exception("the batcher's loop failed; all inputs end, and the replica asks to be replaced")
            self.worker.is_broken = True
            self._fail_all()

    def _fail_all(self) -> None:
        for item in [*self.running, *self._waiting.in_turn()]:
            if not item.answer.done():
                item.answer.set_exception(EngineClosed())
        self.running = []


def _resolve(item: _Item, row: Array | Failure) -> None:
    if item.answer.done():  # nobody waits any more
        return
    if isinstance(row, Failure):
        item.answer.set_exception(EngineFailed())
    else:
        item.answer.set_result(row)


def _budgets(manifest: Manifest, asked: int | None, tokens: int, logits: int) -> tuple[int, int]:
    """Return how many tokens a short request has at most, and a batch: as many as are asked for, or else `tokens`.

    A batch of sparse vectors has no more than have so many `logits`, unless it is asked for.
    """
    if asked is not None or manifest.task != "embed_sparse":
        return asked or tokens, asked or tokens
    return tokens, min(tokens, max(1, logits // manifest.vocab_size))


def _example(manifest: Manifest) -> OneShotInput:
    """Return something small to run."""
    image = manifest.image
    if image is None:
        return TextInput([manifest.special_ids.pad] * 2, [0] * 2, places=[0] if manifest.task == "fill" else [])
    return ImageInput(np.zeros((image.channels, image.size, image.size), np.float32), tokens=1)


def _example_batches(
    manifest: Manifest, batch_tokens: int, shapes: Sequence[tuple[int, int]]
) -> list[list[OneShotInput]]:
    """Return batches to compare graphs by, none larger than a model's may be; of several texts the last is shorter."""
    rng, image = np.random.default_rng(0), manifest.image
    if image is not None:
        tokens, shape = manifest.limits.max_positions, (image.channels, image.size, image.size)
        counts = {max(1, min(rows, batch_tokens // tokens)) for rows, _ in shapes}
        return [
            [ImageInput(rng.standard_normal(shape, np.float32), tokens) for _ in range(rows)] for rows in sorted(counts)
        ]
    batches: list[list[OneShotInput]] = []
    for rows, tokens in shapes:
        length = min(tokens, manifest.limits.max_input_tokens, batch_tokens)
        places = [0] if manifest.task == "fill" else []
        ids = rng.integers(0, manifest.vocab_size, (min(rows, max(1, batch_tokens // length)), length)).tolist()
        texts = [TextInput(row, [0] * length, places) for row in ids]
        last = max(1, length // 2) if len(texts) > 1 else length
        batches.append([*texts[:-1], TextInput(texts[-1].ids[:last], [0] * last, places)])
    return batches
