"""The KV cache: memory in slots, which the decoder graph updates in place.

Letters: L arrays (a key and a value a layer), R slots, K key/value heads, S capacity in tokens, D head width. A slot is
a row of every array. Slots in use are dense, 0 … n−1, so that a step binds a prefix of the memory and copies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model.package import CacheShape
from model.package.inputs import cache_names
from service.engine.session import Array
from service.engine.slot_array import SlotArray

FIRST_SLOTS, FIRST_LENGTH = 8, 32  # what is reserved at first


@dataclass(frozen=True)
class Copy:
    """Tokens start … stop−1 of one slot to be copied onto another, and its source where that differs."""

    target: int
    origin: int
    start: int
    stop: int
    with_source: bool


class KVCache:
    """Keys and values of every layer; in a translator also those of the sources, which never change."""

    def __init__(self, shape: CacheShape, *, max_slots: int, max_length: int, has_cross: bool) -> None:
        self.shape = shape
        self.max_slots, self.max_length = max_slots, max_length
        heads, width = shape.num_kv_heads, shape.head_dim
        arrays = 2 * shape.num_layers
        self._own = SlotArray(arrays, heads, width, shape.dtype)
        self._cross = SlotArray(arrays, heads, width, shape.dtype) if has_cross else None
        # Of each source the last token, (L, R, 1, 1, K·D), and the length.
        self._last = SlotArray(arrays, 1, heads * width, shape.dtype)
        self.source_lengths = np.ones(max_slots, np.int32)
        self.generation = 0  # counts the moves
        self._names = {
            prefix: cache_names(prefix, shape.num_layers) for prefix in ("past", "present", "cross", "kept", "last")
        }
        self.reserve(slots=1, length=1, source_length=1)

    @property
    def slots(self) -> int:
        """How many slots there is room for."""
        return self._own.slots

    @property
    def length(self) -> int:
        """How many tokens a slot has room for."""
        return self._own.length

    @property
    def source_length(self) -> int:
        """How many tokens of a source a slot has room for."""
        return self._cross.length if self._cross else 0

    @property
    def bytes_per_token(self) -> int:
        """Memory of one token in one slot."""
        shape = self.shape
        return 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * np.dtype(shape.dtype).itemsize

    def reserve(
        self, slots: int, length: int, source_length: int = 0, *, longest: int | None = None, live: int | None = None
    ) -> None:
        """Make room for slots of a length; raises `ValueError` past the limits.

        The first `live` slots, all unless given, keep what they store. Attention reads memory without gaps faster: with
        half of the capacity unused a decode step of 32 rows took 15 % longer, and cross-attention of 128 rows twice as
        long. So capacity keeps close to what is needed: it grows by half, but not beyond the `longest` that a sequence
        may become, shrinks when half is not needed, and is made to measure for sources when nothing is stored.
        """
        if slots > self.max_slots or max(length, source_length) > self.max_length:
            raise ValueError(f"{slots} slots × {length} tokens exceed {self.max_slots} × {self.max_length}")
        live = self.slots if live is None else live
        if slots > self.slots:
            slots = min(max(slots, 2 * self.slots, FIRST_SLOTS), self.max_slots)
        slots = max(slots, self.slots)
        before = self.slots, self.length, self.source_length
        least = min(FIRST_LENGTH, self.max_length)
        try:
            self._own.reshape(slots, self._fitting(self.length, max(length, least), longest), live)
            if self._cross:
                source_length = self._fitting(self.source_length, source_length) if live else source_length
                self._cross.reshape(slots, source_length, live)
                self._last.reshape(slots, 1, live)
        finally:  # also when memory runs out half-way: what is bound is old then too
            self.generation += before != (self.slots, self.length, self.source_length)

    def _fitting(self, capacity: int, needed: int, longest: int | None = None) -> int:
        if needed > capacity:
            return max(needed, min(capacity + capacity // 2, longest or self.max_length, self.max_length))
        return needed if 2 * needed < capacity else capacity

    def copy(self, copies: Sequence[Copy]) -> None:
        """Copy slots onto others, one after the other; no target may be an origin."""
        for copy in copies:
            tokens = slice(copy.start, copy.stop)
            self._own.values[:, copy.target, :, tokens] = self._own.values[:, copy.origin, :, tokens]
            if copy.with_source and self._cross:
                for array in (self._cross.values, self._last.values):
                    array[:, copy.target] = array[:, copy.origin]
                self.source_lengths[copy.target] = self.source_lengths[copy.origin]

    def read(self, slot: int, start: int, stop: int) -> Array:
        """Return a copy of a slot's tokens start … stop−1, (L, K, stop − start, D)."""
        return self._own.values[:, slot, :, start:stop].copy()

    def write(self, slot: int, start: int, tokens: Array) -> None:
        """Put tokens (L, K, T, D) into a slot, the first at `start`."""
        self._own.values[:, slot, :, start : start + tokens.shape[2]] = tokens

    def store_source(self, slot: int, arrays: Sequence[Array], length: int) -> None:
        """Keep a source's projected keys and values, (K, S, D) each, in the order of the encoder graph's outputs."""
        assert self._cross is not None, "bug: a generator has no sources"
        self.source_lengths[slot] = length
        for index, array in enumerate(arrays):
            self._cross.values[index, slot, :, :length] = array[:, :length]
            self._last.values[index, slot] = array[:, length - 1].reshape(1, 1, -1)

    def bind(self, first: int, count: int) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return what a step over slots first … first+count−1 binds: inputs, and outputs in the same memory."""
        rows = slice(first, first + count)
        own = [array[rows] for array in self._own.values]
        inputs = dict(zip(self._names["past"], own, strict=True))
        outputs = dict(zip(self._names["present"], own, strict=True))
        if self._cross:
            cross = [array[rows] for array in self._cross.values]
            last = [array[rows, 0] for array in self._last.values]  # (R, 1, K·D)
            inputs |= dict(zip(self._names["cross"] + self._names["last"], cross + last, strict=True))
            outputs |= dict(zip(self._names["kept"], cross, strict=True))
        return inputs, outputs
