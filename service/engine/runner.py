"""Running a step: arrays into the graphs, choices out. The one part of the engine that works off the event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from model.package import Manifest
from model.package.inputs import encoder_inputs, pad_rows
from service.engine.beam_search import Candidates, candidates_of
from service.engine.kv_cache import Copy, KVCache
from service.engine.prefix_cache import BLOCK_TOKENS
from service.engine.sampling import SampledToken, SamplingParams, sample, scored
from service.engine.scheduler import Batch, Choice, Chunk, Decode, Extent, Prefill, SchedulerLimits
from service.engine.sequence import Sampling, Search, Sequence
from service.engine.session import Array, Session, SessionOptions

LOGPROB_TOKENS = 32  # of a prompt whose logits are looked at together; a vocabulary's worth of numbers for each
FEW_TOKENS = 32  # in quarters: less padding than a run of the graph is worth
Likeliest = Callable[[Array, int], tuple[Array, Array]]  # logits, count → log probabilities and ids, best first


class Runner:
    """A generator's or translator's graphs and their KV cache."""

    def __init__(self, folder: Path, manifest: Manifest, options: SessionOptions, limits: SchedulerLimits) -> None:
        assert manifest.cache is not None, "bug: a manifest of a decoder has a cache"
        graphs = {name: Session(folder / graph.file, options) for name, graph in manifest.graphs.items()}
        self._encoder, self._decoder, self._candidates = graphs.get("encoder"), graphs["decoder"], graphs["candidates"]
        self._cross_outputs = manifest.graphs["encoder"].outputs if self._encoder else []
        self._pad = manifest.special_ids.pad
        self.prefilled_tokens = 0  # by all prefills and encoders so far, padding included
        self.cache = KVCache(
            manifest.cache,
            max_slots=limits.max_slots,
            max_length=manifest.limits.max_positions,
            has_cross=self._encoder is not None,
        )
        self._decode_step = _DecodeStep(self._decoder, self.cache, manifest.vocab_size)

    def warm_up(self) -> None:
        """Run each graph once: a first run is slow, and better before there is a client."""
        prompt = [self._pad] * (1 if self._encoder else 3)
        sequence = Sequence(prompt, Sampling(SamplingParams(1), prompt), prompt if self._encoder else None, [0])
        extent = Extent(slots=1, live=0, length=len(prompt), longest=len(prompt), source_length=len(prompt))
        self.run(Prefill([Chunk(sequence, len(prompt) - 1)], [], extent))
        sequence.computed = len(prompt) - 1
        self.run(Decode([sequence], [], extent))
        self._likeliest(np.zeros((1, self._decode_step.vocab_size), np.float32), 2)

    def run(self, batch: Batch) -> list[Choice]:
        """Run a step; a decode returns one choice for each sequence, a prefill nothing."""
        extent = batch.extent
        self.cache.reserve(extent.slots, extent.length, extent.source_length, longest=extent.longest, live=extent.live)
        self.cache.copy(batch.copies)
        if isinstance(batch, Decode):
            return choose(self._decode_step.run(batch.sequences), batch.sequences, self._likeliest)
        self._prefill(batch)
        return []

    def _prefill(self, batch: Prefill) -> None:
        """Compute each prompt's next part, which is empty for prompts of a single token: decode computes that."""
        if self._encoder is not None:
            self._encode_sources(self._encoder, batch.chunks)
        for chunk in batch.chunks:
            for number, block in enumerate(chunk.restored):
                assert block.tokens is not None, "bug: a block is matched before it is filled"
                self.cache.write(chunk.sequence.slots[0], number * block.tokens.shape[2], block.tokens)
        work = [chunk for chunk in batch.chunks if chunk.tokens]
        # Behind a past the operator takes one row at a time; a first prefill may be ragged.
        for chunk in work:
            if chunk.sequence.wants_prompt_logprobs:
                self._fill_with_logprobs(chunk)
            elif chunk.sequence.computed:
                self._fill([chunk])
        first = [chunk for chunk in work if not chunk.sequence.computed and not chunk.sequence.wants_prompt_logprobs]
        for run in runs_alike(first, lambda chunk: chunk.tokens):
            self._fill(run)
        for chunk in batch.chunks:
            self._hand_on(chunk)

    def _encode_sources(self, encoder: Session, chunks: list[Chunk]) -> None:
        for run in runs_alike(chunks, lambda chunk: len(chunk.sequence.source_ids or ())):
            ids, lengths = pad_rows([chunk.sequence.source_ids or [] for chunk in run], self._pad)
            self.prefilled_tokens += ids.size
            projected = encoder.run(encoder_inputs(ids, lengths), self._cross_outputs)
            for row, chunk in enumerate(run):
                (slot,) = chunk.sequence.slots
                self.cache.store_source(slot, [array[row] for array in projected], int(lengths[row]))

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
        while start < end:
            stop = end if end - start <= LOGPROB_TOKENS + 1 else start + LOGPROB_TOKENS
            piece = sequence.prompt_ids[start:stop] + [self._pad] * (2 - (stop - start))  # as in _fill
            past, length, positions = np.array([start]), np.array([stop - start]), np.arange(stop - start)[None]
            logits = self._compute(np.array([piece]), past, length, positions, sequence.slots[0])
            following = sequence.prompt_ids[start + 1 : stop + 1]
            sequence.prompt_tokens += [
                scored(row, token, alternatives) for row, token in zip(logits[0], following, strict=True)
            ]
            start = stop

    def _compute(self, ids: Array, past: Array, lengths: Array, logit_positions: Array, first_slot: int) -> Array:
        """Run the decoder over consecutive slots; return the wanted logits, (B, P, vocab_size)."""
        rows, new = ids.shape
        self.prefilled_tokens += ids.size
        bound = self._decoder.bound()
        inputs = {
            "input_ids": ids,
            "position_ids": past[:, None] + np.arange(new),
            "last_positions": (past + lengths - 1).astype(np.int32),
            "total_length": np.array(past.max() + new, np.int32),
            "logit_positions": logit_positions,
        }
        cached, updated = self.cache.bind(first_slot, rows)
        logits = np.empty((rows, logit_positions.shape[1], self._decode_step.vocab_size), self.cache.shape.dtype)
        bound.bind({**inputs, **cached}, {"logits": logits, **updated})
        bound.run()
        return logits.astype(np.float32, copy=False)

    def _hand_on(self, chunk: Chunk) -> None:
        """Copy what a chunk has computed into the prefix cache, and to those who share it."""
        sequence, stop = chunk.sequence, chunk.sequence.computed + chunk.tokens
        (slot,) = sequence.slots
        for position, block in chunk.stored:
            block.tokens = self.cache.read(slot, position, position + BLOCK_TOKENS)
        start = 0 if chunk.restored else sequence.computed
        self.cache.copy([Copy(sharer.slots[0], slot, start, stop, with_source=True) for sharer in chunk.sharers])

    def _likeliest(self, logits: Array, count: int) -> tuple[Array, Array]:
        inputs = {"logits": logits, "count": np.array([min(count, logits.shape[-1])])}
        log_probabilities, ids = self._candidates.run(inputs, ["log_probabilities", "ids"])
        return log_probabilities, ids


class _DecodeStep:
    """One new token for slots 0 … n−1: arrays that stay, bound anew only when their number or place changes."""

    def __init__(self, session: Session, cache: KVCache, vocab_size: int) -> None:
        self._cache, self.vocab_size = cache, vocab_size
        self._session = session.bound()
        self._bound: tuple[int, int] | None = None  # rows, generation of the cache
        self._inputs: dict[str, Array] = {}
        self._logits = np.empty((0, 1, vocab_size), cache.shape.dtype)

    def run(self, sequences: list[Sequence]) -> Array:
        """Feed each row's newest token; return the logits of all slots, (rows, vocab_size)."""
        rows = sum(len(sequence.slots) for sequence in sequences)
        if self._bound != (rows, self._cache.generation):
            self._bind(rows)
        inputs = self._inputs
        tokens, positions = [0] * rows, [0] * rows
        for sequence in sequences:
            for slot, token in zip(sequence.slots, sequence.next_tokens(), strict=True):
                tokens[slot], positions[slot] = token, sequence.computed
        inputs["input_ids"][:, 0] = tokens
        inputs["position_ids"][:, 0] = inputs["last_positions"][:] = positions
        inputs["total_length"][...] = max(positions) + 1
        if "source_last_positions" in inputs:
            lengths = self._cache.source_lengths[:rows]
            inputs["source_last_positions"][:] = lengths - 1
            inputs["source_total_length"][...] = lengths.max()
        self._session.run()
        return self._logits[:rows, 0].astype(np.float32, copy=False)

    def _bind(self, rows: int) -> None:
        if rows > len(self._logits):
            self._logits = np.empty((self._cache.slots, 1, self.vocab_size), self._cache.shape.dtype)
        self._inputs = {
            "input_ids": np.zeros((rows, 1), np.int64),
            "position_ids": np.zeros((rows, 1), np.int64),
            "last_positions": np.zeros(rows, np.int32),
            "total_length": np.zeros((), np.int32),
            "logit_positions": np.zeros((rows, 1), np.int64),
        }
        if self._cache.source_length:
            self._inputs["source_last_positions"] = np.zeros(rows, np.int32)
            self._inputs["source_total_length"] = np.zeros((), np.int32)
        cached, updated = self._cache.bind(0, rows)
        self._session.bind({**self._inputs, **cached}, {"logits": self._logits[:rows], **updated})
        self._bound = rows, self._cache.generation


def runs_alike(chunks: list[Chunk], length_of: Callable[[Chunk], int]) -> list[list[Chunk]]:
    """Cut chunks into runs of consecutive slots and like lengths: padding adds a quarter at most, or a few tokens."""
    runs: list[list[Chunk]] = []
    for chunk in chunks:
        if runs and runs[-1][-1].sequence.slots[0] + 1 == chunk.sequence.slots[0]:
            shorter, longer = sorted((length_of(runs[-1][0]), length_of(chunk)))
            if 4 * longer <= 5 * shorter + FEW_TOKENS:
                runs[-1].append(chunk)
                continue
        runs.append([chunk])
    return runs


def _ids(chunk: Chunk) -> list[int]:
    return chunk.sequence.prompt_ids[chunk.sequence.computed : chunk.sequence.computed + chunk.tokens]


def _slots(sequences: list[Sequence]) -> list[int]:
    return [slot for sequence in sequences for slot in sequence.slots]


def choose(logits: Array, sequences: list[Sequence], likeliest: Likeliest) -> list[Choice]:
    """Choose from the logits of all slots: sampled rows together, and searched rows together."""
    chosen: dict[Sequence, Choice] = {}
    sampled = [sequence for sequence in sequences if isinstance(sequence.decoding, Sampling)]
    if sampled:
        rows = [s.decoding.row for s in sampled if isinstance(s.decoding, Sampling)]
        tokens: Mapping[Sequence, SampledToken] = dict(
            zip(sampled, sample(_rows(logits, _slots(sampled)), rows), strict=True)
        )
        chosen.update(tokens)
    searches = [sequence for sequence in sequences if isinstance(sequence.decoding, Search)]
    if searches:
        most = max(candidates_of(sequence.decoding.width) for sequence in searches)
        log_probabilities, ids = likeliest(_rows(logits, _slots(searches)), most)
        start = 0
        for sequence in searches:
            rows_of, count = slice(start, start + len(sequence.slots)), candidates_of(sequence.decoding.width)
            chosen[sequence] = Candidates(log_probabilities[rows_of, :count], ids[rows_of, :count])
            start += len(sequence.slots)
    return [chosen[sequence] for sequence in sequences]


def _rows(logits: Array, slots: list[int]) -> Array:
    """Return the logits of some slots, without a copy where they are all there are, in order."""
    return logits if slots == list(range(len(logits))) else logits[slots]
