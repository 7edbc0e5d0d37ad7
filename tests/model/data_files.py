"""Files of data sets in miniature, in the formats that `model.training.data` reads."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write_xz(path: Path, text: str) -> None:
    """Write a compressed text, and the folders it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(text.encode()))


def write_idx(path: Path, array: NDArray[Any]) -> None:
    """Write an array of bytes in MNIST's file format, and the folders it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))
