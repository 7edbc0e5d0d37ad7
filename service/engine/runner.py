"""Running a step: arrays into the graphs, choices out. The one part of the engine that works off the event loop."""

from __future__ import annotations

import logging
from collections import abc
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from model.package import Manifest
from model.package.heap import trim_heap
from model.package.inputs import decoder_inputs, encoder_inputs, pad_rows
from service.engine.arrays import Array, Floats
from service.engine.batch import Batch, Chunk, Decode, Extent, Prefill, StepChoice
from service.engine.choosing import DeviceLogits, HostLogits, StepLogits, choose, choose_with_drafts
from service.engine.decode_step import DecodeStep
from service.engine.device import DeviceArray, DeviceGraphs
from service.engine.device_memory import DeviceMemory
from service.engine.isolation import Failure, isolated
from service.engine.kv_cache import Copy, KVCache, bytes_of_longest
from service.engine.logprobs import scored
from service.engine.memory import HostMemory, Memory, MemoryShape
from service.engine.native.vocabulary import fastest_passes
from service.engine.prefix_cache import BLOCK_TOKENS
from service.engine.providers import Provider
from service.engine.sampling_params import SamplingParams
from service.engine.scheduler import SchedulerLimits
from service.engine.sequence import Sampling, Sequence
from service.engine.session import Session, SessionOptions

logger = logging.getLogger(__name__)

# Tokens of a prompt whose logits are computed together. Fewer make smaller products, which are slower; more logits than
# 25 MB are memory that is touched for the first time at every run, which is slower still.
LOGPROB_TOKENS, LOGPROB_LOGITS = 128, 128 * 50_000
# Tokens of padding that a prompt may have beyond a quarter of its own: they cost less than one more run of the graph.
SPARE_PADDING = 8


class Runner:
    """A generator's or translator's graphs and their KV cache."""

    def __init__(self, folder: Path, manifest: Manifest, options: SessionOptions, limits: SchedulerLimits) -> None:
        assert manifest.cache is not None, "bug: a manifest of a decoder has a cache"
        graphs = {
            name: Session(folder / graph.file, options, replays=name == "decoder")
            for name, graph in manifest.graphs.items()
        }
        self._encoder, self._decoder, self._candidates = graphs.get("encoder"), graphs["decoder"], graphs["candidates"]
        self._cross_outputs = manifest.graphs["encoder"].outputs if self._encoder else []
        self._passes = fastest_passes(options)
        self._pad = manifest.special_ids.pad
        self.prefilled_tokens = 0  # by all prefills and encoders so far, padding included
        device = self._decoder.device
        self._device = DeviceGraphs(options, device) if self._decoder.keeps_on_device else None
        allocate: Callable[[MemoryShape], Memory] = HostMemory
        capacity = limits.kv_cache_bytes
        if self._device is not None:
            taken = limits.max_slots * bytes_of_longest(manifest)  # whatever is used of it
            capacity = None if capacity is None else max(capacity, taken)
            allocate = partial(DeviceMemory, graphs=self._device, device=device)
        self.cache = KVCache(
            manifest.cache,
            max_slots=limits.max_slots,
            max_length=manifest.limits.max_positions,
            has_cross=self._encoder is not None,
            capacity_bytes=capacity,
            is_half=self._decoder.has_half_cache,
            allocate=allocate,
        )
        self._vocab_size = manifest.vocab_size
        self._decode_step = DecodeStep(self._decoder, self.cache, manifest.vocab_size, self._device)

    @property
    def provider(self) -> Provider:
        """What computes the graphs of a step."""
        return self._decoder.provider

    @property
    def takes_drafts(self) -> bool:
        """Whether a step may compute several tokens of a sequence."""
        return self._decoder.takes_slots

    @property
    def is_on_device(self) -> bool:
        """Whether a device computes a step; what it has recorded is its thread's."""
        return self._device is not None

    def run_each_graph_once(self) -> None:
        """Compute something small with every graph, and give back the memory that runs have taken.

        A first run is slow, and better before there is a client; a later one tells whether the graphs can still compute
        anything: it raises what a graph raises.
        """
        counted = self.prefilled_tokens
        with ExitStack() as stack:
            for session in (self._encoder, self._decoder, self._candidates):
                if session is not None:
                    stack.enter_context(session.shrinking())
            stack.enter_context(self._decoder.turn)  # of all that a device is asked for
            self._compute_something()
        self.prefilled_tokens = counted
        self.cache.release_all()

    def _compute_something(self) -> None:
        prompt = [self._pad] * (1 if self._encoder else 3)
        sequence = Sequence(prompt, Sampling(SamplingParams(1), prompt), prompt if self._encoder else None, slots=[0])
        extent = Extent(slots=1, live=0, length=len(prompt), source_length=len(prompt))
        results = self.run(Prefill([Chunk(sequence, len(prompt) - 1)], [], extent))
        sequence.computed = len(prompt) - 1
        results += self.run(Decode([sequence], [], extent))
        for result in results:
            if isinstance(result, Failure):
                raise result.error
        self._logits().search([0], {}, 2)

    def run(self, batch: Batch) -> list[StepChoice | Failure | None]:
        """Run a step; a decode returns a choice for each sequence, a prefill None for each chunk.

        Where the graphs fail, they run again on halves, until only who makes them fail has a failure as its result.
        """
        extent = batch.extent
        with self._decoder.turn:
            self.cache.make_room(
                extent.slots, extent.length, extent.source_length, live=extent.live, writes=partial(self._writes, batch)
            )
            self.cache.copy(batch.copies)
            if isinstance(batch, Prefill):
                return isolated(self._prefill, batch.chunks)
            return self._decode(batch)

    def _writes(self, batch: Batch) -> int:
        """Return how many tokens' memory a step may take at most, in whole pages of every slot, padding included."""
        budget = self.cache.budget

        def taken(before: int, after: int) -> int:
            return budget.cost(1, after) - budget.cost(1, before)

        written = sum(taken(0, copy.stop) - taken(0, copy.start) for copy in batch.copies)
        if self.cache.has_cross:
            lengths = self.cache.source_lengths
            written += sum(taken(0, int(lengths[copy.origin])) for copy in batch.copies if copy.with_source)
        if isinstance(batch, Prefill):
            for chunk in batch.chunks:
                begun = 0 if chunk.restored else chunk.sequence.computed
                source = 0 if chunk.sequence.has_source else len(chunk.sequence.source_ids or ())
                padding = max(1, chunk.tokens // 4 + SPARE_PADDING)  # see `runs_alike` and `_fill`
                ended = chunk.sequence.computed + chunk.tokens + padding
                written += (1 + len(chunk.sharers)) * (taken(begun, ended) + taken(0, source))
            return written
        return written + sum(
            len(each.slots) * taken(each.computed, each.computed + 1 + len(batch.drafts.get(each, ())))
            for each in batch.sequences
        )

    def rest(self) -> None:
        """Give memory back while nothing runs: of the cache, of the sessions and of the heap."""
        self.run_each_graph_once()
        trim_heap()

    def _decode(self, batch: Decode) -> list[StepChoice | Failure | None]:
        if batch.drafts and (drawn := self._decode_with_drafts(batch)) is not None:
            return [*drawn]
        sequences = batch.sequences
        slots = self._decode_step.feed(sequences, batch.extent.slots)
        rows = isolated(self._decode_step.run, slots)
        failures = {slot: row for slot, row in zip(slots, rows, strict=True) if row is not None}
        failed = {s: failures[slot] for s in sequences for slot in s.slots if slot in failures} if failures else {}
        whole = [sequence for sequence in sequences if sequence not in failed] if failed else sequences
        choices = isolated(partial(choose, self._logits()), whole) if whole else []
        of_sequence: dict[Sequence, StepChoice | Failure] = {**failed, **dict(zip(whole, choices, strict=True))}
        return [of_sequence[sequence] for sequence in sequences]

    def _decode_with_drafts(self, batch: Decode) -> list[StepChoice | Failure] | None:
        """Run a step with its drafts, if that can be done."""
        first_rows = self._decode_step.feed_with_drafts(batch.sequences, batch.drafts)
        if first_rows is None:
            return None
        try:
            self._decode_step.run_with_drafts()
            return choose_with_drafts(self._logits(), batch.sequences, batch.drafts, first_rows)
        except BaseException:  # who is the culprit is looked for without them; a library's may be none of `Exception`
            logger.exception("a step with drafts failed, and is run again without")
            return None

    def _prefill(self, chunks: abc.Sequence[Chunk]) -> list[None]:
        """Compute each prompt's next part, which is empty for prompts of a single token: decode computes that."""
        if self._encoder is not None:
            self._encode_sources(self._encoder, chunks)
        for chunk in chunks:
            for number, block in enumerate(chunk.restored):
                assert block.tokens is not None, "bug: a block is matched before it is filled"
                self.cache.write(chunk.sequence.slots[0], number * block.tokens.shape[2], block.tokens)
        work = [chunk for chunk in chunks if chunk.tokens]
        # Behind a past the operator takes one row at a time; a first prefill may be ragged.
        for chunk in work:
            if chunk.sequence.wants_prompt_logprobs:
                self._fill_with_logprobs(chunk)
            elif chunk.sequence.computed:
                self._fill([chunk])
        first = [chunk for chunk in work if not chunk.sequence.computed and not chunk.sequence.wants_prompt_logprobs]
        for run in runs_alike(first, lambda chunk: chunk.tokens):
            self._fill(run)
        for chunk in chunks:
            self._hand_on(chunk)
        return [None] * len(chunks)

    def _encode_sources(self, encoder: Session, chunks: abc.Sequence[Chunk]) -> None:
        for run in runs_alike(chunks, lambda chunk: len(chunk.sequence.source_ids or ())):
            ids, lengths = pad_rows([chunk.sequence.source_ids or [] for chunk in run], self._pad)
            self.prefilled_tokens += ids.size
            first = run[0].sequence.slots[0]
            self.cache.encode_sources(encoder, encoder_inputs(ids, lengths), self._cross_outputs, first, lengths)

    def _fill(self, chunks: list[Chunk]) -> None:
        rows = [_ids(chunk) for chunk in chunks]
        # A single token would be computed by another kernel than a token among several.
        rows[0] = rows[0] + [self._pad] * (2 - max(map(len, rows)))
        ids, _ = pad_rows(rows, self._pad)
        past = np.array([chunk.sequence.computed for chunk in chunks])
        lengths = np.array([chunk.tokens for chunk in chunks])
        self._compute(ids, past, lengths, (lengths - 1)[:, None], chunks[0].sequence.slots[0])

    def _fill_with_logprobs(self, chunk: Chunk) -> None:
        """Compute a chunk piece by piece, and leave the probabilities of the tokens behind each of its own."""
        sequence = chunk.sequence
        assert isinstance(sequence.decoding, Sampling)
        alternatives = sequence.decoding.params.prompt_logprobs
        assert alternatives is not None
        start, end = sequence.computed, sequence.computed + chunk.tokens
        most = max(2, min(LOGPROB_TOKENS, LOGPROB_LOGITS // self._vocab_size))
        while start < end:
            stop = end if end - start <= most + 1 else start + most
            piece = sequence.prompt_ids[start:stop] + [self._pad] * (2 - (stop - start))  # as in _fill
            past, length, positions = np.array([start]), np.array([stop - start]), np.arange(stop - start)[None]
            logits = self._compute(np.array([piece]), past, length, positions, sequence.slots[0], wanted=True)
            assert logits is not None
            following = np.array(sequence.prompt_ids[start + 1 : stop + 1])
            tokens = scored(logits[0], following, [alternatives] * len(following), self._passes)
            for reader in (sequence, *chunk.sharers):
                reader.prompt_tokens[start:] = tokens  # not added: a run that failed may be repeated
            start = stop

    def _compute(
        self, ids: Array, past: Array, lengths: Array, logit_positions: Array, first_slot: int, *, wanted: bool = False
    ) -> Floats | None:
        """Run the decoder over consecutive slots; return the logits (B, P, vocab_size) if they are wanted."""
        rows, new = ids.shape
        self.prefilled_tokens += ids.size
        bound = self._decoder.bound()
        inputs = decoder_inputs(ids, past, lengths, logit_positions)
        cached, updated = self.cache.bind(first_slot, rows)
        shape = (rows, logit_positions.shape[1], self._vocab_size)
        logits: Array | DeviceArray
        if self._device is None:
            logits = np.empty(shape, self.cache.shape.dtype)
        else:
            logits = DeviceArray(shape, self.cache.shape.dtype, self._decoder.device)
        bound.bind(
            {**inputs, **cached}, {"logits": logits if isinstance(logits, np.ndarray) else logits.view(), **updated}
        )
        bound.run()
        self.cache.hold(first_slot, past + lengths, past + new)
        if not wanted:
            return None
        if isinstance(logits, np.ndarray):
            return logits.astype(np.float32, copy=False)
        assert self._device is not None
        return self._device.logits(logits.table(self._vocab_size), np.arange(rows * shape[1])).reshape(shape)

    def _hand_on(self, chunk: Chunk) -> None:
        """Copy what a chunk has computed into the prefix cache, and to those who share it."""
        sequence, stop = chunk.sequence, chunk.sequence.computed + chunk.tokens
        (slot,) = sequence.slots
        for position, block in chunk.stored:
            block.tokens = self.cache.read(slot, position, position + BLOCK_TOKENS)
        start = 0 if chunk.restored else sequence.computed
        self.cache.copy([Copy(sharer.slots[0], slot, start, stop, with_source=True) for sharer in chunk.sharers])

    def _logits(self) -> StepLogits:
        """Return what the last decode has left."""
        step = self._decode_step
        if self._device is None:
            return HostLogits(step.host_logits, self._candidates, self._passes)
        return DeviceLogits(step.device_logits, step.rows, self._device, self._candidates, self._passes)


def runs_alike(chunks: abc.Sequence[Chunk], length_of: Callable[[Chunk], int]) -> list[list[Chunk]]:
    """Cut chunks into runs of consecutive slots and like lengths: padding adds a quarter at most, or a few tokens."""
    runs: list[list[Chunk]] = []
    for chunk in chunks:
        if runs and runs[-1][-1].sequence.slots[0] + 1 == chunk.sequence.slots[0]:
            shorter, longer = sorted((length_of(runs[-1][0]), length_of(chunk)))
            if 4 * longer <= 5 * shorter + 4 * SPARE_PADDING:
                runs[-1].append(chunk)
                continue
        runs.append([chunk])
    return runs


def _ids(chunk: Chunk) -> list[int]:
    return chunk.sequence.prompt_ids[chunk.sequence.computed : chunk.sequence.computed + chunk.tokens]
