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
        self.slots, self.length = min(FIRST_SLOTS, max_slots), min(FIRST_LENGTH, max_length)
        self.source_length = self.length if has_cross else 0
        self.generation = 0  # counts the moves to other memory
        self._arrays = 2 * shape.num_layers
        self._own = self._room(self.slots, self.length)  # (L, R, K, S, D)
        self._cross = self._room(self.slots, self.source_length)
        self._last = self._last_zeros(self.slots)  # (L, R, 1, K·D)
        self._names = {
            prefix: cache_names(prefix, shape.num_layers) for prefix in ("past", "present", "cross", "kept", "last")
        }

    @property
    def bytes_per_token(self) -> int:
        """Memory of one token in one slot."""
        return self._arrays * self.shape.num_kv_heads * self.shape.head_dim * np.dtype(self.shape.dtype).itemsize

    def reserve(self, slots: int, length: int, source_length: int = 0, *, live: int | None = None) -> None:
        """Make room for slots of a length, and give back what is far more; raises `ValueError` past the limits.

        The first `live` slots, all unless given, keep what they store. Attention reads memory without gaps faster: with
        half of the capacity unused a decode step of 32 rows took 15 % longer, and cross-attention of 128 rows twice as
        long. So a length grows by a quarter, not by doubling; sources, which do not grow, have just what they need.
        """
        if slots > self.max_slots or max(length, source_length) > self.max_length:
            raise ValueError(f"{slots} slots × {length} tokens exceed {self.max_slots} × {self.max_length}")
        live = self.slots if live is None else live
        slots = self.slots if slots <= self.slots else min(max(slots, 2 * self.slots), self.max_slots)
        if length > self.length:
            length = min(max(length, self.length + self.length // 4), self.max_length)
        else:
            length = self.length if 2 * length >= self.length else max(length, min(FIRST_LENGTH, self.length))
        if source_length <= self.source_length and 5 * source_length >= 4 * self.source_length:
            source_length = self.source_length
        self._resize(slots, length, live)
        if self.source_length:
            self._resize_sources(slots, source_length, live)
        self.slots = slots

    def copy(self, copies: Sequence[Copy]) -> None:
        """Copy slots onto others, one after the other; no target may be an origin."""
        for copy in copies:
            tokens = slice(copy.start, copy.stop)
            self._own[:, copy.target, :, tokens] = self._own[:, copy.origin, :, tokens]
            if copy.with_source and self.source_length:
                self._cross[:, copy.target] = self._cross[:, copy.origin]
                self._last[:, copy.target] = self._last[:, copy.origin]

    def read(self, slot: int, start: int, stop: int) -> Array:
        """Return a copy of a slot's tokens start … stop−1, (L, K, stop − start, D)."""
        return self._own[:, slot, :, start:stop].copy()

    def write(self, slot: int, start: int, tokens: Array) -> None:
        """Put tokens (L, K, T, D) into a slot, the first at `start`."""
        self._own[:, slot, :, start : start + tokens.shape[2]] = tokens

    def store_source(self, slot: int, arrays: Sequence[Array], length: int) -> None:
        """Keep a source's projected keys and values, (K, S, D) each, in the order of the encoder graph's outputs."""
        for index, array in enumerate(arrays):
            self._cross[index, slot, :, :length] = array[:, :length]
            self._last[index, slot, 0] = array[:, length - 1].ravel()

    def bind(self, first: int, count: int) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return what a step over slots first … first+count−1 binds: inputs, and outputs in the same memory."""
        rows = slice(first, first + count)
        past, present = self._names["past"], self._names["present"]
        inputs = {name: array[rows] for name, array in zip(past, self._own, strict=True)}
        outputs = {name: array[rows] for name, array in zip(present, self._own, strict=True)}
        if self.source_length:
            cross, kept, last = self._names["cross"], self._names["kept"], self._names["last"]
            inputs |= {name: array[rows] for name, array in zip(cross, self._cross, strict=True)}
            inputs |= {name: array[rows] for name, array in zip(last, self._last, strict=True)}
            outputs |= {name: array[rows] for name, array in zip(kept, self._cross, strict=True)}
        return inputs, outputs

    def _resize(self, slots: int, length: int, live: int) -> None:
        if (slots, length) != (self.slots, self.length):
            self._own = _moved(self._own, self._room(slots, length), live)
            self.length = length
            self.generation += 1

    def _resize_sources(self, slots: int, length: int, live: int) -> None:
        if (slots, length) != (self.slots, self.source_length):
            self._cross = _moved(self._cross, self._room(slots, length), live)
            last = self._last_zeros(slots)
            last[:, : self.slots] = self._last
            self._last, self.source_length = last, length
            self.generation += 1

    def _room(self, slots: int, length: int) -> Array:
        return np.empty((self._arrays, slots, self.shape.num_kv_heads, length, self.shape.head_dim), self.shape.dtype)

    def _last_zeros(self, slots: int) -> Array:
        return np.zeros((self._arrays, slots, 1, self.shape.num_kv_heads * self.shape.head_dim), self.shape.dtype)


def _moved(old: Array, new: Array, live: int) -> Array:
    """Copy live slots, and of their tokens what fits."""
    slots, tokens = min(live, old.shape[1]), min(old.shape[3], new.shape[3])
    new[:, :slots, :, :tokens] = old[:, :slots, :, :tokens]
    return new
