"""Arrays and names as the graphs take them; `model.export.graphs` makes the graphs that these fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def pad_rows(rows: Sequence[Sequence[int]], value: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return ids (B, T) padded on the right, and the rows' lengths (B,)."""
    lengths = np.array([len(row) for row in rows], np.int64)
    ids = np.full((len(rows), int(lengths.max())), value, np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
    return ids, lengths


def attention_mask(lengths: NDArray[Any], longest: int) -> NDArray[Any]:
    """Return 1 at real tokens and 0 at padding, (B, T)."""
    return (np.arange(longest) < lengths[:, None]).astype(np.int64)


def cache_names(prefix: str, layers: int) -> list[str]:
    """Return `<prefix>_key_0`, `<prefix>_value_0`, `<prefix>_key_1` and so on."""
    return [f"{prefix}_{part}_{layer}" for layer in range(layers) for part in ("key", "value")]
