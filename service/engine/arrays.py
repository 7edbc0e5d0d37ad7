"""Arrays that graphs read and write: of the host, or somewhere in a device's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

Array = NDArray[Any]


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


def memory_on(device: str, shape: Sequence[int], dtype: np.dtype[Any]) -> onnxruntime.OrtValue:
    """Take memory of a device, of no session's arena; raises ONNX Runtime's own error where there is none left."""
    return onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(shape), dtype.type, device, 0)
