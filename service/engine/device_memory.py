"""A device's memory under the KV cache, taken once and whole: a device has no pages to take as they are needed.

Letters as in `memory.py`: L arrays, R slots, K heads, S tokens that a slot has room for, D head width. To the graphs
that copy it is a table of one token's head a row, (L·R·K·S, D).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from service.engine.arrays import Array, View
from service.engine.columns import pieces
from service.engine.device import DeviceArray, DeviceGraphs
from service.engine.memory import MemoryShape, SlotCopy
from service.engine.session import Session

PIECE_BYTES = 64 * 2**20


class DeviceMemory:
    """All slots at their greatest length, in one array (L, R, K, S, D)."""

    def __init__(self, shape: MemoryShape, graphs: DeviceGraphs, device: str) -> None:
        """Take the memory; raises `MemoryError` where there is not as much."""
        self._shape, self._graphs, self._device = shape, graphs, device
        sizes = (shape.arrays, shape.slots, shape.heads, shape.length, shape.width)
        try:
            self._values = DeviceArray(sizes, shape.dtype, device)
        except MemoryError as error:
            raise MemoryError(
                f"a KV cache of {shape.slots} slots × {shape.length} tokens is taken whole on a device; {error}; "
                "lower max_slots or max_positions"
            ) from error

    @property
    def length(self) -> int:
        """How many tokens a slot has room for."""
        return self._shape.length

    @property
    def used_bytes(self) -> int:
        """All of it."""
        return self._values.num_bytes

    def view(self, array: int, first: int, count: int) -> View:
        """Return slots for a graph to read and write."""
        shape = self._shape
        slot = shape.heads * shape.length * shape.width
        start = (array * shape.slots + first) * slot
        return self._values.view(start, (count, shape.heads, shape.length, shape.width))

    def hold(self, first: int, tokens: Array, written: Array | None = None) -> None:
        """Do nothing: what slots hold costs no more than the slots."""

    def forget(self, first: int) -> None:
        """Do nothing, likewise."""

    def release(self) -> None:
        """Do nothing: recorded steps point into the memory."""

    def make_room(self, length: int, live: int) -> bool:
        """Return that nothing moved: there is always room for the longest."""
        return False

    def copy(self, copies: Sequence[SlotCopy]) -> None:
        """Copy tokens of slots to the same places in others, many at once; on their way they lie in memory twice."""
        pairs = [(self._rows(c.origin, c.start, c.stop), self._rows(c.target, c.start, c.stop)) for c in copies]
        origins, targets = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
        table = self._values.table(self._shape.width)
        for piece in pieces(len(origins), PIECE_BYTES // self._shape.head_bytes):
            self._graphs.move(table, origins[piece], table, targets[piece])

    def read(self, slot: int, start: int, stop: int) -> Array:
        """Return a copy of a slot's tokens."""
        rows = self._rows(slot, start, stop)
        values = self._graphs.rows(self._values.table(self._shape.width), rows.ravel())
        return values.reshape(*rows.shape, self._shape.width)

    def write(self, slot: int, start: int, tokens: Sequence[Array]) -> None:
        """Put tokens into a slot."""
        values = DeviceArray.of(np.stack(tokens), self._device)
        rows = self._rows(slot, start, start + tokens[0].shape[1])
        width = self._shape.width
        self._graphs.move(values.table(width), np.arange(rows.size), self._values.table(width), rows.ravel())

    def project(self, encoder: Session, inputs: Mapping[str, Array], outputs: Sequence[str]) -> DeviceArray:
        """Run an encoder over sources; return what it projects, (L, B, K, T, D)."""
        shape, (rows, tokens) = self._shape, inputs["input_ids"].shape
        sizes = (rows, shape.heads, tokens, shape.width)
        projected = DeviceArray((shape.arrays, *sizes), shape.dtype, self._device)
        bound = encoder.bound()
        bound.bind(inputs, {name: projected.view(i * math.prod(sizes), sizes) for i, name in enumerate(outputs)})
        bound.run()
        return projected

    def store(self, first: int, projected: DeviceArray, lengths: Array) -> None:
        """Put projected sources into consecutive slots, with their padding, which nothing looks at."""
        _, rows, _, tokens, width = projected.shape
        targets = np.stack([self._rows(first + row, 0, tokens) for row in range(rows)], axis=1)  # (L, B, K, T)
        self._graphs.move(projected.table(width), np.arange(targets.size), self._values.table(width), targets.ravel())

    def store_last(self, first: int, projected: DeviceArray, lengths: Array) -> None:
        """Put the last token of each projected source into consecutive slots."""
        arrays, rows, heads, tokens, width = projected.shape
        places = np.arange(arrays * rows * heads * tokens).reshape(arrays, rows, heads, tokens)
        origins = np.take_along_axis(places, np.reshape(lengths - 1, (1, rows, 1, 1)), axis=3)  # (L, B, K, 1)
        slots = np.arange(arrays * self._shape.slots * heads).reshape(arrays, self._shape.slots, heads)
        targets = slots[:, first : first + rows]  # of a head each, as the slots here hold one token of all heads
        self._graphs.move(projected.table(width), origins.ravel(), self._values.table(width), targets.ravel())

    def _rows(self, slot: int, start: int, stop: int) -> Array:
        """Return where in the table a slot's tokens are, (L, K, stop − start)."""
        shape = self._shape
        arrays, heads = np.arange(shape.arrays)[:, None, None], np.arange(shape.heads)[None, :, None]
        return ((arrays * shape.slots + slot) * shape.heads + heads) * shape.length + np.arange(start, stop)
