"""Numbers that stay in a device's memory, and the graphs that work on them there.

The graphs are those of `model.export.device`. They move bits and compare numbers of two bytes, so packages for devices
are float16, as the device's attention is.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from service.engine.arrays import Array, View
from service.engine.session import Session, SessionOptions, memory_on
from service.engine.shortlist import Shortlist

GRAPHS = Path(__file__).parent / "graphs"
HALF = np.dtype(np.float16)


class DeviceArray:
    """An array in the memory of a device; the processor cannot reach into it."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, device: str) -> None:
        """Take the memory; raises `MemoryError` where there is not as much."""
        self.shape, self.dtype, self._device = shape, np.dtype(dtype), device
        try:
            self._value = memory_on(device, shape, self.dtype)
        except Exception as error:
            raise MemoryError(f"the device has no {self.num_bytes / 2**20:,.0f} MiB left: {error}") from error

    @property
    def num_bytes(self) -> int:
        """How much it takes."""
        return math.prod(self.shape) * int(self.dtype.itemsize)

    def view(self, start: int = 0, shape: tuple[int, ...] | None = None) -> View:
        """Return a part of it for a graph to read and write: an array of a shape that begins at number `start`."""
        address = self._value.data_ptr() + start * self.dtype.itemsize
        return View(address, shape or self.shape, self.dtype, self, self._device)

    def table(self, width: int) -> View:
        """Return all of it as rows of so many numbers."""
        return self.view(shape=(math.prod(self.shape) // width, width))

    def put(self, values: Array) -> None:
        """Copy an array of this shape there."""
        self._value.update_inplace(np.ascontiguousarray(values, self.dtype))

    @classmethod
    def of(cls, values: Array, device: str) -> DeviceArray:
        """Return a copy of an array on the device."""
        array = cls(values.shape, values.dtype, device)
        array.put(values)
        return array


class DeviceGraphs:
    """The graphs, opened where the memory is."""

    def __init__(self, options: SessionOptions, device: str) -> None:
        self._device = device
        # They move and compare; and what they take is small, and known.
        options = replace(options, threads=1, spin_us=0, gpu_memory_bytes=0)
        self._move, self._rows, self._logits, self._likeliest, self._shortlist = (
            Session(GRAPHS / f"{name}.onnx", options) for name in ("move", "rows", "logits", "likeliest", "shortlist")
        )

    def move(self, source: View, origins: Array, target: View, targets: Array) -> None:
        """Copy rows `origins` (n,) of a table (m, W) to rows `targets` (n,) of another (r, W), or of the same one.

        No row may be a target twice, nor an origin and a target.
        """
        bound = self._move.bound()
        there = self._indices(origins), self._indices(targets[:, None])
        inputs = {"source": source, "origins": there[0].view(), "target": target, "targets": there[1].view()}
        bound.bind(inputs, {"moved": target})
        bound.run()

    def rows(self, source: View, origins: Array) -> Array:
        """Return a copy of rows (n, W) of a table (m, W) in the processor's memory."""
        return self._copied(self._rows, "source", source, origins, HALF)

    def logits(self, logits: View, rows: Array) -> Array:
        """Return some rows of logits as float32 (n, vocab_size), in the processor's memory."""
        return self._copied(self._logits, "logits", logits, rows, np.dtype(np.float32))

    def gather_logits(self, logits: View, rows: Array) -> DeviceArray:
        """Return some rows of logits as float32 (n, vocab_size), on the device."""
        there = DeviceArray((len(rows), logits.shape[1]), np.float32, self._device)
        bound = self._logits.bound()
        bound.bind({"logits": logits, "origins": self._indices(rows).view()}, {"rows": there.view()})
        bound.run()
        return there

    def likeliest(self, logits: View) -> Array:
        """Return the likeliest token of each row of logits (n, vocab_size): ids (n,)."""
        bound, ids = self._likeliest.bound(), np.empty(logits.shape[0], np.int64)
        bound.bind({"logits": logits}, {"ids": ids})
        bound.run()
        return ids

    def shortlist(self, logits: View, rows: Array, temperatures: Array, count: int) -> Shortlist:
        """Return the likeliest tokens of some rows of logits (m, vocab_size), and what all of them weigh."""
        size, bound = len(rows), self._shortlist.bound()
        count = min(count, logits.shape[1])
        best, ids = np.empty((size, count), np.float32), np.empty((size, count), np.int64)
        masses, plain_masses = np.empty((size, 1), np.float32), np.empty((size, 1), np.float32)
        there = self._indices(rows), DeviceArray.of(temperatures.astype(np.float32)[:, None], self._device)
        bound.bind(
            {
                "logits": logits,
                "origins": there[0].view(),
                "temperatures": there[1].view(),
                "count": np.array([count]),
            },
            {"best": best, "ids": ids, "masses": masses, "plain_masses": plain_masses},
        )
        bound.run()
        return Shortlist(best, ids, masses[:, 0], plain_masses[:, 0], is_whole=count == logits.shape[1])

    def _copied(self, session: Session, name: str, source: View, origins: Array, dtype: np.dtype[Any]) -> Array:
        bound, rows = session.bound(), np.empty((len(origins), source.shape[1]), dtype)
        bound.bind({name: source, "origins": self._indices(origins).view()}, {"rows": rows})
        bound.run()
        return rows

    def _indices(self, indices: Array) -> DeviceArray:
        return DeviceArray.of(np.asarray(indices, np.int64), self._device)
