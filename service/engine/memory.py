"""Memory under the KV cache: tokens in slots, laid out as attention reads them, and paid for as they are written.

Letters: L arrays (a key and a value a layer), R slots, K key/value heads, S tokens that a slot has room for, D head
width. An array is (R, K, S, D): a slot is a row, and a step binds a range of rows.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from service.engine.arrays import Array, View
from service.engine.session import Session

PAGE = mmap.PAGESIZE
MAP_NORESERVE = 0x4000  # Linux's; Python's mmap has no name for it yet


@dataclass(frozen=True)
class MemoryShape:
    """What a memory may come to hold: L arrays of R slots × K heads × S tokens × D numbers."""

    arrays: int
    slots: int
    heads: int
    length: int
    width: int
    dtype: str

    @property
    def head_bytes(self) -> int:
        """Bytes of one token in one head of one array."""
        return self.width * np.dtype(self.dtype).itemsize

    @property
    def token_bytes(self) -> int:
        """Bytes of one token in one slot, in all arrays."""
        return self.arrays * self.heads * self.head_bytes


@dataclass(frozen=True)
class SlotCopy:
    """Tokens start … stop−1 of one slot to be copied to the same place in another, which then holds `stop`."""

    origin: int
    target: int
    start: int
    stop: int


class Memory(Protocol):
    """Tokens in slots, where a device's graphs can be bound to them. It knows which tokens each slot holds."""

    @property
    def length(self) -> int:
        """How many tokens a slot has room for."""

    @property
    def used_bytes(self) -> int:
        """What is taken from the device."""

    def view(self, array: int, first: int, count: int) -> View:
        """Return slots first … first+count−1 of an array for a graph to read and write, (count, K, S, D)."""

    def hold(self, first: int, tokens: Array, written: Array | None = None) -> None:
        """Be told how many tokens slots from `first` on hold after a step that wrote them, `written` with padding."""

    def forget(self, first: int) -> None:
        """Be told that slots from `first` on hold nothing any more."""

    def copy(self, copies: Sequence[SlotCopy]) -> None:
        """Copy tokens of slots to others; no target may be an origin, nor be there twice."""

    def read(self, slot: int, start: int, stop: int) -> Array:
        """Return a copy of a slot's tokens, (L, K, stop − start, D), in the processor's memory."""

    def write(self, slot: int, start: int, tokens: Sequence[Array]) -> None:
        """Put tokens, L arrays (K, T, D), into a slot, the first at `start`; it then holds start + T."""

    def project(self, encoder: Session, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Any:
        """Run an encoder over sources and keep what it projects, L arrays (B, K, T, D), where `store` reads it."""

    def store(self, first: int, projected: Any, lengths: Array) -> None:
        """Put projected sources, of lengths (B,), into consecutive slots, from their first token on."""

    def store_last(self, first: int, projected: Any, lengths: Array) -> None:
        """Put the last token of each projected source, all its heads as one, into consecutive slots' only place."""

    def make_room(self, length: int, live: int) -> bool:
        """Give every slot room for so many tokens at least; the first `live` slots keep what they hold.

        Returns whether slots have moved. While nothing is live the room is made to measure, if that costs nothing.
        """

    def release(self) -> None:
        """Give back what holds no token."""


class HostMemory:
    """The processor's memory.

    Address space for all slots at their greatest length is reserved once, and costs nothing; a page is taken when a
    token is first written to it. So nothing moves when a sequence grows, and a long sequence costs what it is long.
    Huge pages would be taken whole, for the sake of one head's few tokens, so there are none.
    """

    def __init__(self, shape: MemoryShape) -> None:
        self._shape = shape
        self._dtype = np.dtype(shape.dtype)
        self._bounds = np.finfo(self._dtype).min, np.finfo(self._dtype).max  # beyond which numbers would be infinite
        self._array_bytes = shape.slots * shape.heads * shape.length * shape.head_bytes
        self._mapping = _reserved(shape.arrays * self._array_bytes)
        self._held = np.zeros(shape.slots, np.int64)  # tokens of each slot
        self._written = np.zeros(shape.slots, np.int64)  # tokens of each slot that have memory
        self._values = self._laid_out(shape.length)

    @property
    def length(self) -> int:
        """How many tokens a slot has room for."""
        length: int = self._values.shape[3]
        return length

    @property
    def used_bytes(self) -> int:
        """The pages that slots have written to."""
        shape = self._shape
        pages = -(-self._written * shape.head_bytes // PAGE) * PAGE
        return shape.arrays * shape.heads * int(np.minimum(pages, self.length * shape.head_bytes).sum())

    def view(self, array: int, first: int, count: int) -> View:
        """Return slots for a graph to read and write."""
        return View.of(self._values[array, first : first + count])

    def hold(self, first: int, tokens: Array, written: Array | None = None) -> None:
        """Note what slots hold after a step that wrote them."""
        slots = slice(first, first + len(tokens))
        self._held[slots] = tokens
        np.maximum(self._written[slots], tokens if written is None else written, out=self._written[slots])

    def forget(self, first: int) -> None:
        """Note that slots hold nothing any more."""
        self._held[first:] = 0

    def copy(self, copies: Sequence[SlotCopy]) -> None:
        """Copy tokens of slots to others."""
        for copy in copies:
            tokens = slice(copy.start, copy.stop)
            self._values[:, copy.target, :, tokens] = self._values[:, copy.origin, :, tokens]
            self._note(copy.target, copy.stop)

    def read(self, slot: int, start: int, stop: int) -> Array:
        """Return a copy of a slot's tokens."""
        return self._values[:, slot, :, start:stop].copy()

    def write(self, slot: int, start: int, tokens: Sequence[Array]) -> None:
        """Put tokens into a slot."""
        stop = start + tokens[0].shape[1]
        for values, new in zip(self._values, tokens, strict=True):
            values[slot, :, start:stop] = new if new.dtype == self._dtype else np.clip(new, *self._bounds)
        self._note(slot, stop)

    def project(self, encoder: Session, inputs: Mapping[str, Array], outputs: Sequence[str]) -> list[Array]:
        """Run an encoder over sources; return what it projects."""
        return encoder.run(inputs, outputs)

    def store(self, first: int, projected: Sequence[Array], lengths: Array) -> None:
        """Put projected sources into consecutive slots, without their padding."""
        for row, length in enumerate(lengths.tolist()):
            self.write(first + row, 0, [array[row, :, :length] for array in projected])

    def store_last(self, first: int, projected: Sequence[Array], lengths: Array) -> None:
        """Put the last token of each projected source into consecutive slots."""
        for row, length in enumerate(lengths.tolist()):
            self.write(first + row, 0, [array[row, :, length - 1].reshape(1, 1, -1) for array in projected])

    def make_room(self, length: int, live: int) -> bool:
        """Give every slot room for so many tokens, and while there is something to move for twice as many as before."""
        if live:
            room = self.length if length <= self.length else min(max(length, 2 * self.length), self._shape.length)
        else:
            room = length
            self.forget(0)  # a source that could not be computed may have left its slot's old length
        moves = room != self.length
        self.lay_out(room, live)
        return moves

    def lay_out(self, length: int, live: int) -> None:
        """Give every slot room for another number of tokens; the first `live` slots keep what they hold."""
        if length == self.length:
            return
        assert length > self.length or not live, "bug: slots that hold tokens only get more room"
        old, taken = self._values, self._taken_rooms() * self.length
        self._values = self._laid_out(length)
        for slot in reversed(range(live)):  # each moves towards the end, where the next has left
            held = self._held[slot]
            self._values[:, slot, :, :held] = old[:, slot, :, :held]
        # What was written before has its pages still, whichever slot they belong to now.
        self._written[:] = np.where(np.arange(self._shape.slots) * length < taken, length, 0)
        np.maximum(self._written[:live], self._held[:live], out=self._written[:live])
        if live:
            self.release()

    def release(self) -> None:
        """Give the pages back that hold no token."""
        stale = list(self._stale())
        for start_of_array in range(0, self._shape.arrays * self._array_bytes, self._array_bytes):
            for start, stop in stale:
                self._give_back(start_of_array + start, start_of_array + stop)
        self._written[:] = self._held

    def _note(self, slot: int, tokens: int) -> None:
        self._held[slot] = tokens
        self._written[slot] = max(self._written[slot], tokens)

    def _taken_rooms(self) -> int:
        """Return up to which slot there is something written."""
        return 1 + int(np.flatnonzero(self._written).max(initial=-1))

    def _stale(self) -> Iterator[tuple[int, int]]:
        """Return the bytes of an array that hold no token but have memory: of whole slots, or behind heads' tokens."""
        heads, room = self._shape.heads, self.length * self._shape.head_bytes
        for slot in np.flatnonzero(self._written > self._held).tolist():
            start, held = slot * heads * room, int(self._held[slot]) * self._shape.head_bytes
            if held:
                yield from ((start + head * room + held, start + (head + 1) * room) for head in range(heads))
            else:
                yield start, start + heads * room

    def _give_back(self, start: int, stop: int) -> None:
        start, stop = -(-start // PAGE) * PAGE, stop // PAGE * PAGE  # a page at either end may hold a neighbour's
        if start < stop:
            self._mapping.madvise(mmap.MADV_DONTNEED, start, stop - start)

    def _laid_out(self, length: int) -> Array:
        """Return the arrays with room for so many tokens a slot, (L, R, K, S, D), each where it always begins."""
        shape = self._shape
        token, head = shape.head_bytes, length * shape.head_bytes
        strides = (self._array_bytes, shape.heads * head, head, token, self._dtype.itemsize)
        sizes = (shape.arrays, shape.slots, shape.heads, length, shape.width)
        return np.ndarray(sizes, self._dtype, self._mapping, strides=strides)


def whole_pages(length: int, head_bytes: int) -> int:
    """Return the least number of tokens, at least `length`, that fill whole pages, so that heads share none."""
    step = PAGE // math.gcd(PAGE, head_bytes)
    return -(-length // step) * step


def _reserved(size: int) -> mmap.mmap:
    """Reserve address space, of which pages are taken as they are written to."""
    try:
        mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
    except OSError as error:
        raise MemoryError(
            f"no address space for a KV cache of {size >> 20:,} MiB ({error.strerror}); lower max_slots, or lift the "
            "limit on virtual memory (ulimit -v, vm.overcommit_memory=2)"
        ) from None
    with suppress(OSError):  # of kernels that have no huge pages
        mapping.madvise(mmap.MADV_NOHUGEPAGE)
    return mapping
