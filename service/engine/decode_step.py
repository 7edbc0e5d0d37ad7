"""A decode step: one new token for every slot, on memory that stays bound from step to step."""

from __future__ import annotations

import logging
from collections import abc
from collections.abc import Mapping

import numpy as np

from service.engine.arrays import Array, Floats, View
from service.engine.device import DeviceArray, DeviceGraphs
from service.engine.drafting import MAX_DRAFT_ROWS, MAX_DRAFT_TOKENS
from service.engine.kv_cache import KVCache
from service.engine.native.attention import SLOTS, SOURCE_SLOTS
from service.engine.sequence import Sequence
from service.engine.session import BoundSession, Session
from service.engine.slots import slots_of

logger = logging.getLogger(__name__)

LONGS, INTS = ("input_ids", "position_ids", "logit_positions"), ("last_positions", "source_last_positions")


class DecodeStep:
    """One new token for slots 0 … n−1, or some of them: arrays that stay, bound anew when n or their place changes.

    What belongs to the slots of a client that pauses is left over from before, and nobody reads it.

    A device is given a step's hundreds of operators at once, as a recording made for each number of rows. So that there
    are few of them, rows that nobody has are computed too, as far as no sequence has their slots: they write to the
    first token of slots that hold nothing. Recordings take lengths of the cache, not of the longest row.

    If the session `takes_slots`, the rows of a search read one source, that of its first slot: a fourth of the memory
    for a beam of four. With drafts a slot has several rows, of tokens that are one behind the other. Slots between
    which others rest are one run of the graph.
    """

    def __init__(self, session: Session, cache: KVCache, vocab_size: int, device: DeviceGraphs | None) -> None:
        self._cache, self._session = cache, session
        self._all_rows = session.bound()
        self._bound: tuple[int, int] | None = None  # rows, generation of the cache
        self._is_recorded = False
        self._spoilt: set[int] = set()  # numbers of rows that are not recorded any more
        self.rows = 0  # of the last step
        self._bound_with_drafts: dict[tuple[int, int], BoundSession] = {}  # by rows and slots, of one generation
        self._generation_with_drafts = cache.generation
        self._with_drafts: BoundSession | None = None  # of the last step
        rows = cache.max_slots + (MAX_DRAFT_ROWS * MAX_DRAFT_TOKENS if session.takes_slots else 0)
        self._longs, self._ints = np.zeros((3, rows), np.int64), np.zeros((2, rows), np.int32)
        self._slots = np.zeros(rows, np.int32)
        self._source_slots = np.arange(rows, dtype=np.int32) if session.takes_slots and cache.has_cross else None
        self._inputs = {name: self._longs[place][:, None] for place, name in enumerate(LONGS)}
        self._inputs |= {name: self._ints[place] for place, name in enumerate(INTS) if place == 0 or cache.has_cross}
        self._total_lengths = {"total_length": np.array(cache.max_length, np.int32)}
        if cache.has_cross:
            self._total_lengths["source_total_length"] = np.array(cache.max_length, np.int32)
        shape = (rows, 1, vocab_size)
        self._on_device = device is not None
        self._logits: Array | DeviceArray
        if device is None:
            self._logits = np.empty(shape, cache.shape.dtype)  # takes memory as rows come
        else:
            self._logits = DeviceArray(shape, cache.shape.dtype, session.device)
            self._device_arrays = {
                names: DeviceArray(array.shape, array.dtype, session.device)
                for names, array in ((LONGS, self._longs), (INTS, self._ints))
            }

    @property
    def host_logits(self) -> Floats:
        """What the last run has left in the processor's memory, (rows, vocab_size)."""
        assert isinstance(self._logits, np.ndarray)
        return self._logits[: self.rows, 0].astype(np.float32, copy=False)

    @property
    def device_logits(self) -> DeviceArray:
        """What the last run has left on a device, (rows, 1, vocab_size)."""
        assert isinstance(self._logits, DeviceArray)
        return self._logits

    def feed(self, sequences: abc.Sequence[Sequence], slots_in_use: int) -> list[int]:
        """Take each row's newest token; return the rows' slots, which ascend.

        `slots_in_use` have sequences, those that rest included.
        """
        slots = sorted(slots_of(sequences))
        self.rows = 1 + slots[-1]
        bound = self.rows
        if self._on_device:
            self._is_recorded = self._session.replays and slots_in_use == self.rows
            bound = min(recorded_rows(self.rows), self._cache.max_slots) if self._is_recorded else self.rows
        if self._bound != (bound, self._cache.generation):
            self._bind_rows(self._all_rows, 0, bound)
            self._bound = bound, self._cache.generation
        inputs = self._inputs
        tokens, positions = [0] * bound, [0] * bound
        for sequence in sequences:
            for slot, token in zip(sequence.slots, sequence.next_tokens(), strict=True):
                tokens[slot], positions[slot] = token, sequence.computed
        inputs["input_ids"][:bound, 0] = tokens
        inputs["position_ids"][:bound, 0] = positions
        inputs["last_positions"][:bound] = inputs["position_ids"][:bound, 0]
        for first, count in _stretches(slots):
            self._cache.hold(first, inputs["last_positions"][first : first + count] + 1)
        if self._cache.has_cross:
            inputs["source_last_positions"][:bound] = self._cache.source_lengths[:bound] - 1
        if self._source_slots is not None:
            _share_sources(self._source_slots[:bound], sequences)
        if self._on_device:
            for names, array in ((LONGS, self._longs), (INTS, self._ints)):
                self._device_arrays[names].put(array)
        else:
            self._total_lengths["total_length"][...] = max(positions) + 1
            if self._cache.has_cross:
                self._total_lengths["source_total_length"][...] = self._cache.source_lengths[:bound].max()
        return slots

    def feed_with_drafts(
        self, sequences: abc.Sequence[Sequence], drafts: Mapping[Sequence, list[int]]
    ) -> dict[int, int] | None:
        """Take each row's newest token and what its draft has behind that; return each slot's first row.

        None if slots are not 0 … n−1, as where others are between them.
        """
        fed: dict[int, list[int]] = {}
        computed: dict[int, int] = {}
        for sequence in sequences:
            for slot, token in zip(sequence.slots, sequence.next_tokens(), strict=True):
                fed[slot], computed[slot] = [token, *drafts.get(sequence, ())], sequence.computed
        if max(fed) >= len(fed):
            return None
        first_rows: dict[int, int] = {}
        tokens: list[int] = []
        positions: list[int] = []
        for slot in range(len(fed)):
            first_rows[slot] = start = len(tokens)
            tokens += fed[slot]
            positions += range(computed[slot], computed[slot] + len(fed[slot]))
            self._slots[start : len(tokens)] = slot
        self.rows = rows = len(tokens)
        self._inputs["input_ids"][:rows, 0] = tokens
        self._inputs["position_ids"][:rows, 0] = self._inputs["last_positions"][:rows] = positions
        self._total_lengths["total_length"][...] = max(positions) + 1
        if self._cache.has_cross:
            lengths = self._cache.source_lengths[self._slots[:rows]]
            self._inputs["source_last_positions"][:rows] = lengths - 1
            self._total_lengths["source_total_length"][...] = lengths.max()
        # What is behind a token that turns out to be another is written over by the next step.
        self._cache.hold(0, np.array([computed[slot] + len(fed[slot]) for slot in range(len(fed))]))
        self._with_drafts = self._of_rows(rows, len(fed))
        return first_rows

    def run_with_drafts(self) -> None:
        """Compute the logits of all rows that were fed with drafts."""
        assert self._with_drafts is not None, "bug: nothing was fed"
        self._with_drafts.run()

    def _of_rows(self, rows: int, slots: int) -> BoundSession:
        """Return the session for so many rows of so many slots."""
        if self._generation_with_drafts != self._cache.generation:
            self._generation_with_drafts = self._cache.generation
            self._bound_with_drafts.clear()
        if (session := self._bound_with_drafts.get((rows, slots))) is None:
            session = self._bound_with_drafts[rows, slots] = self._session.bound()
            cached, updated = self._cache.bind(0, slots)
            assert isinstance(self._logits, np.ndarray), "bug: drafts on a device"
            inputs = {name: array[:rows] for name, array in self._inputs.items()} | {SLOTS: self._slots[:rows]}
            if self._cache.has_cross:
                inputs[SOURCE_SLOTS] = self._slots[:rows]
            session.bind({**inputs, **self._total_lengths, **cached}, {"logits": self._logits[:rows], **updated})
        return session

    def run(self, slots: abc.Sequence[int]) -> abc.Sequence[None]:
        """Compute the logits of slots that were fed, in their order; repeatable, as it writes the same again."""
        if len(slots) == self.rows:
            self._run_all()
        elif self._session.takes_slots:
            self._run_some(np.array(slots, np.int32))
        else:
            for first, count in _stretches(slots):
                some_rows = self._session.bound()
                self._bind_rows(some_rows, first, count)
                some_rows.run()
        return [None] * len(slots)

    def _run_some(self, slots: Array) -> None:
        """Compute slots between which others rest, as one run: by stretches all weights would be read for each."""
        assert isinstance(self._logits, np.ndarray), "bug: slots on a device"
        inputs: dict[str, Array | View] = {name: array[slots] for name, array in self._inputs.items()}
        inputs[SLOTS] = slots
        if self._cache.has_cross:
            inputs[SOURCE_SLOTS] = slots if self._source_slots is None else self._source_slots[slots]
        logits = np.empty((len(slots), *self._logits.shape[1:]), self._logits.dtype)
        cached, updated = self._cache.bind(0, 1 + int(slots[-1]))
        session = self._session.bound()
        session.bind({**inputs, **self._total_lengths, **cached}, {"logits": logits, **updated})
        session.run()
        self._logits[slots] = logits

    def _run_all(self) -> None:
        if self._is_recorded and self._bound and self._bound[0] not in self._spoilt:
            try:
                self._all_rows.run(recorded_as=self._bound[0])
                return
            except Exception:
                # What was recorded of it may be a part, and would be replayed without an error.
                self._spoilt.add(self._bound[0])
                logger.exception("a step of %d rows failed while recorded, and is run without from now on", self.rows)
        self._all_rows.run()

    def _bind_rows(self, session: BoundSession, first: int, rows: int) -> None:
        cached, updated = self._cache.bind(first, rows)
        inputs: dict[str, Array | View]
        logits: Array | View
        if isinstance(self._logits, DeviceArray):
            inputs = self._device_inputs(first, rows)
            vocab_size = self._logits.shape[-1]
            logits = self._logits.view(first * vocab_size, (rows, 1, vocab_size))
        else:
            some = slice(first, first + rows)
            inputs = {name: array[some] for name, array in self._inputs.items()}
            if self._source_slots is not None and not first:  # else slots are counted from another one
                inputs[SOURCE_SLOTS] = self._source_slots[some]
            logits = self._logits[some]
        session.bind({**inputs, **self._total_lengths, **cached}, {"logits": logits, **updated})

    def _device_inputs(self, first: int, rows: int) -> dict[str, Array | View]:
        slots = self._cache.max_slots
        return {
            name: self._device_arrays[names].view(place * slots + first, (rows, 1) if names is LONGS else (rows,))
            for names in (LONGS, INTS)
            for place, name in enumerate(names)
            if name in self._inputs
        }


def _share_sources(source_slots: Array, sequences: abc.Sequence[Sequence]) -> None:
    """Say in which slot the source of each row is: of a search's rows in its first, of all others in their own."""
    source_slots[:] = range(len(source_slots))
    for sequence in sequences:
        if len(sequence.slots) > 1:
            source_slots[sequence.slots] = min(sequence.slots)


def recorded_rows(rows: int) -> int:
    """Return for how many rows a step is recorded that has at least so many: a power of two, or a multiple of 8."""
    return 1 << (rows - 1).bit_length() if rows <= 8 else -(-rows // 8) * 8


def _stretches(slots: abc.Sequence[int]) -> list[tuple[int, int]]:
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
