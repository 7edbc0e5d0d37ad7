"""Running a step: arrays into the graphs, choices out. The one part of the engine that works off the event loop."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from model.package import Manifest
from model.package.inputs import encoder_inputs, pad_rows
from service.engine.beam_search import Candidates
from service.engine.columns import take
from service.engine.isolation import Failure, isolated
from service.engine.kv_cache import Copy, KVCache
from service.engine.memory import trim_heap
from service.engine.prefix_cache import BLOCK_TOKENS
from service.engine.sampling import Logits, SamplingParams, sample, scored, settled
from service.engine.scheduler import Batch, Choice, Chunk, Decode, Extent, Prefill, SchedulerLimits
from service.engine.searching import Likeliest, likeliest_allowed
from service.engine.sequence import Sampling, Search, Sequence
from service.engine.session import Array, BoundSession, Session, SessionOptions

# Of a prompt whose logits are looked at together. Fewer make smaller products, which are slower; more logits than 25 MB
# (at 50k words) are memory that is touched for the first time at every run, which is slower still.
LOGPROB_TOKENS = 128
FEW_TOKENS = 32  # in quarters: less padding than a run of the graph is worth


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
            capacity_bytes=limits.kv_cache_bytes,
        )
        self._decode_step = _DecodeStep(self._decoder, self.cache, manifest.vocab_size)

    def warm_up(self) -> None:
        """Run each graph once: a first run is slow, and better before there is a client."""
        prompt = [self._pad] * (1 if self._encoder else 3)
        sequence = Sequence(prompt, Sampling(SamplingParams(1), prompt), prompt if self._encoder else None, slots=[0])
        extent = Extent(slots=1, live=0, length=len(prompt), source_length=len(prompt))
        self.run(Prefill([Chunk(sequence, len(prompt) - 1)], [], extent))
        sequence.computed = len(prompt) - 1
        self.run(Decode([sequence], [], extent))
        self._likeliest(np.zeros((1, self._decode_step.vocab_size), np.float32), 2)

    def run(self, batch: Batch) -> list[Choice | Failure | None]:
        """Run a step; a decode returns a choice for each sequence, a prefill None for each chunk.

        Where the graphs fail, they run again on halves, until only who makes them fail has a failure as its result.
        """
        extent = batch.extent
        self.cache.make_room(extent.slots, extent.length, extent.source_length, live=extent.live)
        self.cache.copy(batch.copies)
        if isinstance(batch, Prefill):
            return isolated(self._prefill, batch.chunks)
        return self._decode(batch.sequences)

    def rest(self) -> None:
        """Give memory back while nothing runs: of the cache, of the sessions and of the heap."""
        counted = self.prefilled_tokens
        with ExitStack() as stack:
            for session in (self._encoder, self._decoder, self._candidates):
                if session is not None:
                    stack.enter_context(session.shrinking())
            self.warm_up()
        self.prefilled_tokens = counted
        self.cache.release_all()
        trim_heap()

    def _decode(self, sequences: list[Sequence]) -> list[Choice | Failure | None]:
        self._decode_step.feed(sequences)
        slots = sorted(_slots(sequences))
        rows = isolated(self._decode_step.run, slots)
        failures = {slot: row for slot, row in zip(slots, rows, strict=True) if isinstance(row, Failure)}
        failed = {s: failures[slot] for s in sequences for slot in s.slots if slot in failures}
        whole = [sequence for sequence in sequences if sequence not in failed]
        logits = self._decode_step.logits
        choices = isolated(lambda part: choose(logits, list(part), self._likeliest), whole) if whole else []
        of_sequence: dict[Sequence, Choice | Failure] = {**failed, **dict(zip(whole, choices, strict=True))}
        return [of_sequence[sequence] for sequence in sequences]

    def _prefill(self, chunks: Several[Chunk]) -> list[None]:
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

    def _encode_sources(self, encoder: Session, chunks: Several[Chunk]) -> None:
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
            following = np.array(sequence.prompt_ids[start + 1 : stop + 1])
            tokens = scored(logits[0], following, [alternatives] * len(following))
            for reader in (sequence, *chunk.sharers):
                reader.prompt_tokens[start:] = tokens  # not added: a run that failed may be repeated
            start = stop

    def _compute(self, ids: Array, past: Array, lengths: Array, logit_positions: Array, first_slot: int) -> Logits:
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
        self.cache.hold(first_slot, past + lengths, past + new)
        return logits.astype(np.float32, copy=False)

    def _hand_on(self, chunk: Chunk) -> None:
        """Copy what a chunk has computed into the prefix cache, and to those who share it."""
        sequence, stop = chunk.sequence, chunk.sequence.computed + chunk.tokens
        (slot,) = sequence.slots
        for position, block in chunk.stored:
            block.tokens = self.cache.read(slot, position, position + BLOCK_TOKENS)
        start = 0 if chunk.restored else sequence.computed
        self.cache.copy([Copy(sharer.slots[0], slot, start, stop, with_source=True) for sharer in chunk.sharers])

    def _likeliest(self, logits: Logits, count: int) -> tuple[Array, Array]:
        inputs = {"logits": logits, "count": np.array([min(count, logits.shape[-1])])}
        log_probabilities, ids = self._candidates.run(inputs, ["log_probabilities", "ids"])
        return log_probabilities, ids


class _DecodeStep:
    """One new token for slots 0 … n−1, or some of them: arrays that stay, bound anew when n or their place changes.

    What belongs to a slot that rests is left over from before, and not looked at.
    """

    def __init__(self, session: Session, cache: KVCache, vocab_size: int) -> None:
        self._cache, self.vocab_size = cache, vocab_size
        self._session = session
        self._all_rows = session.bound()
        self._bound: tuple[int, int] | None = None  # rows, generation of the cache
        self._inputs: dict[str, Array] = {}
        self._logits = np.empty((cache.max_slots, 1, vocab_size), cache.shape.dtype)  # takes memory as rows come

    @property
    def logits(self) -> Logits:
        """What the last run has left, (rows, vocab_size)."""
        rows = len(self._inputs["input_ids"])
        return self._logits[:rows, 0].astype(np.float32, copy=False)

    def feed(self, sequences: list[Sequence]) -> None:
        """Take each row's newest token."""
        rows = 1 + max(_slots(sequences))
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
        for first, count in _stretches(sorted(_slots(sequences))):
            self._cache.hold(first, inputs["last_positions"][first : first + count] + 1)
        if "source_last_positions" in inputs:
            lengths = self._cache.source_lengths[:rows]
            inputs["source_last_positions"][:] = lengths - 1
            inputs["source_total_length"][...] = lengths.max()

    def run(self, slots: Several[int]) -> Several[None]:
        """Compute the logits of slots that were fed, in their order; repeatable, as it writes the same again."""
        if len(slots) == len(self._inputs["input_ids"]):
            self._all_rows.run()
        else:
            for first, count in _stretches(slots):
                some_rows = self._session.bound()
                self._bind_rows(some_rows, first, count)
                some_rows.run()
        return [None] * len(slots)

    def _bind(self, rows: int) -> None:
        self._inputs = {
            "input_ids": np.zeros((rows, 1), np.int64),
            "position_ids": np.zeros((rows, 1), np.int64),
            "last_positions": np.zeros(rows, np.int32),
            "total_length": np.zeros((), np.int32),
            "logit_positions": np.zeros((rows, 1), np.int64),
        }
        if self._cache.has_cross:
            self._inputs["source_last_positions"] = np.zeros(rows, np.int32)
            self._inputs["source_total_length"] = np.zeros((), np.int32)
        self._bind_rows(self._all_rows, 0, rows)
        self._bound = rows, self._cache.generation

    def _bind_rows(self, session: BoundSession, first: int, rows: int) -> None:
        cached, updated = self._cache.bind(first, rows)
        some = slice(first, first + rows)
        inputs = {name: array[some] if array.ndim else array for name, array in self._inputs.items()}
        session.bind({**inputs, **cached}, {"logits": self._logits[some], **updated})


def _stretches(slots: Several[int]) -> list[tuple[int, int]]:
    """Return the first and the number of each stretch of consecutive slots; `slots` ascend."""
    if slots[-1] - slots[0] == len(slots) - 1:
        return [(slots[0], len(slots))]
    stretches: list[tuple[int, int]] = []
    for slot in slots:
        first, count = stretches[-1] if stretches else (slot, 0)
        if stretches and first + count == slot:
            stretches[-1] = first, count + 1
        else:
            stretches.append((slot, 1))
    return stretches


def runs_alike(chunks: Several[Chunk], length_of: Callable[[Chunk], int]) -> list[list[Chunk]]:
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


def choose(logits: Logits, sequences: list[Sequence], likeliest: Likeliest) -> list[Choice]:
    """Choose from the logits of all slots (slots, V): sampled rows together, and searched rows together.

    Repeatable: the logits are left as they were, and after an error the seeded generators too.
    """
    chosen: dict[Sequence, Choice] = {}
    sampled = {s.slots[0]: (s, s.decoding.row) for s in sequences if isinstance(s.decoding, Sampling)}
    seeded = [row.rng.bit_generator for _, row in sampled.values() if row.params.seed is not None]
    states = [generator.state for generator in seeded]
    try:
        slots = sorted(sampled)  # the order of the memory: rows that are all there are need no copy
        tokens = sample(_rows(logits, slots), [sampled[slot][1] for slot in slots]) if slots else []
        chosen.update(_search(logits, sequences, likeliest))
    except Exception:
        for generator, state in zip(seeded, states, strict=True):
            generator.state = state
        raise
    for slot, token in zip(slots, tokens, strict=True):
        sequence, row = sampled[slot]
        chosen[sequence] = settled(row, token)
    return [chosen[sequence] for sequence in sequences]


def _search(logits: Logits, sequences: list[Sequence], likeliest: Likeliest) -> dict[Sequence, Choice]:
    """Return what each search among the sequences gets."""
    chosen: dict[Sequence, Choice] = {}
    searches = {s: s.decoding for s in sequences if isinstance(s.decoding, Search)}
    if searches:
        most = max(search.candidates for search in searches.values())
        rows = [held for search in searches.values() for held in search.held()]
        held = {place: row for place, row in enumerate(rows) if row is not None}
        log_probabilities, ids = likeliest_allowed(_rows(logits, _slots([*searches])), held, most, likeliest)
        start = 0
        for sequence, search in searches.items():
            rows_of, count = slice(start, start + len(sequence.slots)), search.candidates
            chosen[sequence] = Candidates(log_probabilities[rows_of, :count], ids[rows_of, :count])
            start += len(sequence.slots)
    return chosen


def _rows(logits: Logits, slots: list[int]) -> Logits:
    """Return the logits of some slots (slots, V), without a copy where they are consecutive."""
    return take(logits, np.array(slots))
