"""The KV cache: memory in slots, which the decoder graph updates in place.

Letters: R slots, K key/value heads, S capacity in tokens, D head width. A slot is a row of every array. Slots in use
are dense, 0 … n−1, so that a step binds a prefix of the memory and copies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from model.package import CacheShape
from model.package.inputs import cache_names
from service.engine.session import Array

FIRST_SLOTS, FIRST_LENGTH = 8, 64  # what is reserved at first; doubled as need arises


class KVCache:
    """Keys and values of every layer; in a translator also those of the sources, which never change."""

    def __init__(self, shape: CacheShape, *, max_slots: int, max_length: int, has_cross: bool) -> None:
        self.shape = shape
        self.max_slots, self.max_length = max_slots, max_length
        self.slots, self.length = min(FIRST_SLOTS, max_slots), min(FIRST_LENGTH, max_length)
        self.source_length = self.length if has_cross else 0
        self._own = [self._zeros(self.slots, self.length) for _ in range(2 * shape.num_layers)]
        self._cross = [
            self._zeros(self.slots, self.source_length) for _ in range(2 * shape.num_layers if has_cross else 0)
        ]
        self._own_names = cache_names("past", shape.num_layers), cache_names("present", shape.num_layers)
        self._cross_names = cache_names("cross", shape.num_layers)

    def reserve(self, slots: int, length: int, source_length: int = 0) -> None:
        """Make room for slots of a length by doubling; what is stored stays. Raises `ValueError` past the limits."""
        if slots > self.max_slots or max(length, source_length) > self.max_length:
            raise ValueError(f"{slots} slots × {length} tokens exceed {self.max_slots} × {self.max_length}")
        slots = _doubled(self.slots, slots, self.max_slots)
        length = _doubled(self.length, length, self.max_length)
        source_length = _doubled(self.source_length, source_length, self.max_length)
        if (slots, length) != (self.slots, self.length):
            self._own = [self._grown(array, slots, length) for array in self._own]
        if (slots, source_length) != (self.slots, self.source_length):
            self._cross = [self._grown(array, slots, source_length) for array in self._cross]
        self.slots, self.length, self.source_length = slots, length, source_length

    def copy(self, targets: Sequence[int], origins: Sequence[int], length: int, cross_pairs: Sequence[bool]) -> None:
        """Copy slots onto others: the first `length` tokens, and the source where `cross_pairs` says so.

        No target may be an origin.
        """
        if not targets:
            return
        for array in self._own:
            array[targets, :, :length] = array[origins, :, :length]
        moved = [
            pair for pair, is_needed in zip(zip(targets, origins, strict=True), cross_pairs, strict=True) if is_needed
        ]
        if moved and self._cross:
            cross_targets, cross_origins = map(list, zip(*moved, strict=True))
            for array in self._cross:
                array[cross_targets] = array[cross_origins]

    def store_source(self, slot: int, arrays: Sequence[Array]) -> None:
        """Keep a source's projected keys and values, (K, S, D) each, in the order of the encoder graph's outputs."""
        for kept, array in zip(self._cross, arrays, strict=True):
            kept[slot, :, : array.shape[1]] = array

    def bind(self, first: int, count: int) -> dict[str, tuple[str, Array]]:
        """Return what a step over slots first … first+count−1 binds: input → (output in the same memory, array)."""
        rows = slice(first, first + count)
        past, present = self._own_names
        state = {name: (out, array[rows]) for name, out, array in zip(past, present, self._own, strict=True)}
        if self._cross:
            state |= {name: ("", array[rows]) for name, array in zip(self._cross_names, self._cross, strict=True)}
        return state

    def _zeros(self, slots: int, length: int) -> Array:
        return np.zeros((slots, self.shape.num_kv_heads, length, self.shape.head_dim), np.float32)

    def _grown(self, array: Array, slots: int, length: int) -> Array:
        grown = self._zeros(slots, length)
        grown[: array.shape[0], :, : array.shape[2]] = array
        return grown


def _doubled(size: int, needed: int, limit: int) -> int:
    while size < needed:
        size = min(2 * size, limit)
    return size
