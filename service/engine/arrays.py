"""Arrays that graphs read and write: of the host, by their types, or somewhere in a device's memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ids = NDArray[np.int64]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class View:
    """Memory of a device as a graph is bound to it: numbers of a shape, one behind the other from an address."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: object  # keeps the memory alive
    device: str = "cpu"

    @classmethod
    def of(cls, array: Array) -> View:
        """Return the view of an array, which must be C-contiguous."""
        return cls(array.ctypes.data, array.shape, array.dtype, array)


def take(values: Floats, places: list[int]) -> Floats:
    """Return some rows, without a copy where they are consecutive."""
    start, stop = places[0], places[0] + len(places)
    return values[start:stop] if places == list(range(start, stop)) else values[places]
