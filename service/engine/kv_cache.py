"""The KV cache: memory in slots, which the decoder graph updates in place.

Letters: L arrays (a key and a value a layer), R slots, K key/value heads, S capacity in tokens, D head width. A slot is
a row of every array. Slots in use are dense, 0 … n−1, so that a step binds a prefix of the memory and copies nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from model.package import CacheShape, Manifest
from model.package.inputs import cache_names
from service.engine.arrays import Array, View
from service.engine.memory import PAGE, HostMemory, Memory, MemoryShape, SlotCopy, whole_pages
from service.engine.session import Session


@dataclass(frozen=True)
class Copy:
    """Tokens start … stop−1 of one slot to be copied onto another, and its source where that differs."""

    target: int
    origin: int
    start: int
    stop: int
    with_source: bool


@dataclass(frozen=True)
class KVBudget:
    """How many tokens all rows may hold together, sources included; a row takes a multiple of `step`."""

    tokens: int
    step: int = 1

    def cost(self, rows: int, length: int, source_length: int = 0) -> int:
        """Return what so many rows come to when each holds so many tokens, and its own copy of the source."""
        return rows * sum(-(-tokens // self.step) * self.step for tokens in (length, source_length))


class KVCache:
    """Keys and values of every layer; in a translator also those of the sources, which never change."""

    def __init__(
        self,
        shape: CacheShape,
        *,
        max_slots: int,
        max_length: int,
        has_cross: bool,
        capacity_bytes: int | None = None,
        is_half: bool = False,
        allocate: Callable[[MemoryShape], Memory] = HostMemory,
    ) -> None:
        """`is_half`: keys and values are kept in 16 bits, whatever the graph computes with, which `shape` says."""
        self.shape, self.has_cross, self.is_half = shape, has_cross, is_half
        self.max_slots, self.max_length = max_slots, max_length
        self._whole = whole = _memory_shape(shape, max_slots, max_length, is_half=is_half)
        self._own = allocate(whole)
        self._cross = allocate(whole) if has_cross else None
        # Of each source the last token, (L, R, 1, 1, K·D), and the length.
        self._last = allocate(MemoryShape(whole.arrays, max_slots, 1, 1, whole.heads * whole.width, shape.dtype))
        self.source_lengths = np.ones(max_slots, np.int32)
        self.generation = 0  # counts the moves
        rectangle = whole.token_bytes * max_slots * whole.length * (2 if has_cross else 1)
        self.capacity_bytes = rectangle if capacity_bytes is None else min(capacity_bytes, rectangle)
        self._names = {
            prefix: cache_names(prefix, shape.num_layers) for prefix in ("past", "present", "cross", "kept", "last")
        }

    @property
    def budget(self) -> KVBudget:
        """How many tokens the capacity holds; a row takes whole pages in every head."""
        step = PAGE // math.gcd(PAGE, self._whole.head_bytes)
        return KVBudget(self.capacity_bytes // self.bytes_per_token, step)

    @property
    def bytes_per_token(self) -> int:
        """Memory of one token in one slot."""
        return self._whole.token_bytes

    @property
    def used_bytes(self) -> int:
        """Memory that is taken now; what ended sequences took is kept for the next until it is needed or `release`d."""
        return self._own.used_bytes + (self._cross.used_bytes if self._cross else 0)

    def make_room(
        self, slots: int, length: int, source_length: int = 0, *, live: int, writes: Callable[[], int] = lambda: 0
    ) -> None:
        """Prepare for a step over slots of these lengths at most; raises `ValueError` past the limits.

        `writes` returns how many tokens' memory the step may take, for which what nobody needs is given back if there
        would be more taken than there is to be; it is asked only where it could be too much.

        The first `live` slots keep what they hold; slots from `slots` on hold nothing. Cross-attention on a processor
        over sources that lie close together is up to a quarter faster than over sources with gaps between them, so
        while nothing is stored their room is made to measure; it grows when a longer one comes.
        """
        if slots > self.max_slots or max(length, source_length) > self.max_length:
            raise ValueError(f"{slots} slots × {length} tokens exceed {self.max_slots} × {self.max_length}")
        self._own.forget(live)
        if self._cross:
            self._cross.forget(live)
            if self._cross.make_room(source_length, live):
                self.generation += 1
        left = (self.capacity_bytes - self.used_bytes) // self.bytes_per_token
        if self.budget.cost(slots, length, source_length) > left and writes() > left:
            self._release()

    def hold(self, first: int, tokens: Array, written: Array | None = None) -> None:
        """Be told how many tokens slots from `first` on hold after a step, of `written` ones with their padding."""
        self._own.hold(first, tokens, written)

    def release_all(self) -> None:
        """Give back all memory; nobody's tokens may be in it any more."""
        for memory in self._memories():
            memory.forget(0)
        self._release()

    def _release(self) -> None:
        for memory in self._memories():
            memory.release()

    def _memories(self) -> list[Memory]:
        return [self._own, self._last] + ([self._cross] if self._cross else [])

    def copy(self, copies: Sequence[Copy]) -> None:
        """Copy slots onto others; no target may be an origin."""
        if not copies:
            return
        self._own.copy([SlotCopy(copy.origin, copy.target, copy.start, copy.stop) for copy in copies])
        others = [copy for copy in copies if copy.with_source] if self._cross else []
        if self._cross and others:
            lengths = self.source_lengths
            self._cross.copy([SlotCopy(copy.origin, copy.target, 0, int(lengths[copy.origin])) for copy in others])
            self._last.copy([SlotCopy(copy.origin, copy.target, 0, 1) for copy in others])
            for copy in others:
                lengths[copy.target] = lengths[copy.origin]

    def read(self, slot: int, start: int, stop: int) -> Array:
        """Return a copy of a slot's tokens start … stop−1, (L, K, stop − start, D)."""
        return self._own.read(slot, start, stop)

    def write(self, slot: int, start: int, tokens: Array) -> None:
        """Put tokens (L, K, T, D) into a slot, the first at `start`."""
        self._own.write(slot, start, list(tokens))

    def encode_sources(
        self, encoder: Session, inputs: Mapping[str, Array], outputs: Sequence[str], first: int, lengths: Array
    ) -> None:
        """Run an encoder over sources of lengths (B,), and keep what it projects of them in slots first … first+B−1."""
        assert self._cross is not None, "bug: a generator has no sources"
        projected = self._cross.project(encoder, inputs, outputs)
        self.source_lengths[first : first + len(lengths)] = lengths
        self._cross.store(first, projected, lengths)
        self._last.store_last(first, projected, lengths)

    def bind(self, first: int, count: int) -> tuple[dict[str, View], dict[str, View]]:
        """Return what a step over slots first … first+count−1 binds: inputs, and outputs in the same memory.

        Keys, values and sources are (count, K, S, D), sources' last tokens (count, 1, K·D).
        """
        own = self._views(self._own, first, count)
        inputs = dict(zip(self._names["past"], own, strict=True))
        outputs = dict(zip(self._names["present"], own, strict=True))
        if self._cross:
            cross = self._views(self._cross, first, count)
            last = [replace(view, shape=(count, 1, view.shape[-1])) for view in self._views(self._last, first, count)]
            inputs |= dict(zip(self._names["cross"] + self._names["last"], cross + last, strict=True))
            outputs |= dict(zip(self._names["kept"], cross, strict=True))
        return inputs, outputs

    def _views(self, memory: Memory, first: int, count: int) -> list[View]:
        return [memory.view(array, first, count) for array in range(self._whole.arrays)]


def bytes_of_longest(manifest: Manifest, *, is_half: bool = False) -> int:
    """Return what one sequence of a model's full length takes, a translator's with the longest source."""
    token_bytes, step = _of_one_sequence(manifest, is_half=is_half)
    return token_bytes * -(-manifest.limits.max_positions // step) * step


def longest_that_fits(manifest: Manifest, capacity_bytes: int, *, is_half: bool = False) -> int:
    """Return how many tokens the longest sequence has for which the memory is enough, as many in a translator's source.

    A multiple of what fills whole pages; 0 where the memory is too small for any.
    """
    token_bytes, step = _of_one_sequence(manifest, is_half=is_half)
    return capacity_bytes // token_bytes // step * step


def _of_one_sequence(manifest: Manifest, *, is_half: bool) -> tuple[int, int]:
    """Return the bytes of a token, with one of a source, and the tokens that fill whole pages."""
    assert manifest.cache is not None, "bug: a manifest of a decoder has a cache"
    shape = _memory_shape(manifest.cache, 1, 1, is_half=is_half)
    return shape.token_bytes * (2 if "encoder" in manifest.graphs else 1), shape.length


def _memory_shape(shape: CacheShape, slots: int, length: int, *, is_half: bool) -> MemoryShape:
    dtype = "float16" if is_half else shape.dtype
    length = whole_pages(length, shape.head_dim * np.dtype(dtype).itemsize)
    return MemoryShape(2 * shape.num_layers, slots, shape.num_kv_heads, length, shape.head_dim, dtype)
