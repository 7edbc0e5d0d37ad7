"""Arrays and names as the graphs take them; `model.export.graphs` makes the graphs that these fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def pad_rows(rows: Sequence[Sequence[int]], value: int) -> tuple[Array, Array]:
    """Return ids (B, T) padded on the right, and the rows' lengths (B,)."""
    lengths = np.array([len(row) for row in rows], np.int64)
    ids = np.full((len(rows), int(lengths.max())), value, np.int64)
    for index, row in enumerate(rows):
        ids[index, : len(row)] = row
    return ids, lengths


def encoder_inputs(ids: Array, lengths: Array, segment_ids: Array | None = None) -> dict[str, Array]:
    """Return an encoder's inputs: ids (B, T) padded on the right, lengths (B,), and a classifier's segments (B, T)."""
    inputs = {
        "input_ids": ids,
        "last_positions": (lengths - 1).astype(np.int32),
        "total_length": np.array(ids.shape[1], np.int32),
    }
    return inputs if segment_ids is None else {**inputs, "segment_ids": segment_ids}


def decoder_inputs(ids: Array, past: Array, lengths: Array, logit_positions: Array) -> dict[str, Array]:
    """Return a decoder's inputs but for its cache and source: new ids (B, T), padded on the right.

    `past` (B,) tokens are before them, `lengths` (B,) of them are real, and of those at `logit_positions` (B, P) the
    logits are wanted.
    """
    new = ids.shape[1]
    return {
        "input_ids": ids,
        "position_ids": past[:, None] + np.arange(new),
        "last_positions": (past + lengths - 1).astype(np.int32),
        "total_length": np.array(past.max() + new, np.int32),
        "logit_positions": logit_positions,
    }


def source_inputs(cross: Mapping[str, Array], lengths: Array) -> dict[str, Array]:
    """Return a decoder's inputs that are of its sources: what the encoder made of them, and their lengths (B,)."""
    return {
        **cross,
        **{name.replace("cross", "last"): last_tokens(array, lengths) for name, array in cross.items()},
        "source_last_positions": (lengths - 1).astype(np.int32),
        "source_total_length": np.array(lengths.max(), np.int32),
    }


def last_tokens(cross: Array, lengths: Array) -> Array:
    """Return of keys or values (B, K, S, D) those of each row's last token, (B, 1, K·D)."""
    return cross[np.arange(len(lengths)), :, lengths - 1].reshape(len(lengths), 1, -1)


def cache_names(prefix: str, layers: int) -> list[str]:
    """Return `<prefix>_key_0`, `<prefix>_value_0`, `<prefix>_key_1` and so on."""
    return [f"{prefix}_{part}_{layer}" for layer in range(layers) for part in ("key", "value")]
