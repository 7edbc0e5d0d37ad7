"""How much each query looks at each key, computed from what a graph's attention operator was given.

The operator keeps its weights to itself, so they are computed once more, as `model.layers.attention` defines them.
T queries, S keys, H query heads, K key/value heads, D head width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from service.engine.arrays import Array
from service.engine.explaining.anatomy import AttentionValues


def attention_weights(attention: AttentionValues, values: Mapping[str, Array], past: int, length: int) -> Array:
    """Return softmax(Q Kᵀ · scale + bias) of one row, (H, T, S), in float32.

    `past` is the first query's position, `length` is S.
    """
    key = values[attention.key][0, :, :length].astype(np.float32)  # (K, S, D)
    width, heads = key.shape[-1], attention.num_heads
    query = values[attention.query][0, :, : heads * width].astype(np.float32)
    query = query.reshape(len(query), heads, width).swapaxes(0, 1)  # (H, T, D)
    if attention.cosines:
        cosines, sines = (values[name][past : past + query.shape[1]] for name in (attention.cosines, attention.sines))
        query = turned(query, cosines.astype(np.float32), sines.astype(np.float32))
    key = np.repeat(key, heads // len(key), axis=0)
    scale = 1 / math.sqrt(width) if attention.scale is None else attention.scale
    scores = query @ key.swapaxes(-1, -2) * np.float32(scale)
    if attention.bias:
        scores = scores + values[attention.bias][0, ..., :length].astype(np.float32)
    scores[:, ~visible(attention, past, query.shape[1], length)] = -np.inf
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    weights: Array = raised / raised.sum(-1, keepdims=True)
    return weights


def visible(attention: AttentionValues, past: int, queries: int, keys: int) -> Array:
    """Return which keys each query may look at, (T, S); a window that looks both ways is in the bias."""
    distance = past + np.arange(queries)[:, None] - np.arange(keys)
    sees = np.ones((queries, keys), bool) if not attention.is_causal else distance >= 0
    if attention.is_causal and attention.window is not None:
        sees &= distance < attention.window
    return sees


def turned(x: Array, cosines: Array, sines: Array) -> Array:
    """Turn vectors (H, T, D) by their positions: pairs of features that lie half of the turning ones apart (RoPE)."""
    half = cosines.shape[-1]  # (T, half)
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([first * cosines - second * sines, second * cosines + first * sines, rest], axis=-1)
