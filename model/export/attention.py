"""Attention as one operator of ONNX Runtime: what stands in an exported graph in the place of `FullAttention`.

`com.microsoft.GroupQueryAttention` knows each row's own length, so padding costs nothing; it updates keys and values in
place, and turns them by their positions. B rows, T new tokens, S source length or cache capacity, H query heads, K
key/value heads, D head width.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from model.export.graph import MICROSOFT, Dim
from model.export.trace import Value, as_tensor, as_value
from model.layers.attention import MultiHeadAttention, visible

Pair = tuple[Value, Value]  # a key and a value


def group_query_attention(
    layer: MultiHeadAttention,
    query: Value,
    key: Value,
    value: Value,
    past: Pair | None,
    last_positions: Value,
    total_length: Value,
    bias: Value | None,
    *,
    is_causal: bool = True,
) -> tuple[Value, Value, Value]:
    """Emit the operator; returns the output (B, T, H·D), and the present keys and values, (B, K, S, D).

    query (B, T, H·D); key and value (B, T, K·D), put behind what `past` (B, K, S, D) holds; last_positions (B,) int32:
    of each row's last real token; total_length () int32: the longest row, new tokens included; bias broadcasts to
    (B, H, T, total_length).
    """
    attributes: dict[str, Any] = {"num_heads": layer.num_heads, "kv_num_heads": layer.num_kv_heads}
    attributes["scale"] = layer.scale
    if not is_causal:
        attributes["causal"] = 0
    elif layer.window is not None:
        attributes["local_window_size"] = layer.window
    inputs = [query, key, value, *(past or (None, None)), last_positions, total_length]
    further: list[Value | Tensor | None] = []
    if layer.rotary is not None:
        attributes["do_rotary"] = 1
        further = [layer.rotary.cos, layer.rotary.sin]
    if bias is not None:
        further = [*(further or [None, None]), None, bias]  # between them the positions, which the operator knows
    shape = (query.shape[0], layer.num_kv_heads, query.shape[1] if past is None else past[0].shape[2], layer.head_dim)
    outputs = [(query.shape, query.dtype), (shape, query.dtype), (shape, query.dtype)]
    output, present_key, present_value = query.tracer.emit_all(
        "GroupQueryAttention", [*inputs, *further], outputs, MICROSOFT, **attributes
    )
    return output, present_key, present_value


def positions_below(length: Value, dim: Dim) -> Value:
    """Emit the positions 0, 1, … below a length (), as many as `dim` says."""
    tracer = length.tracer
    limits = [tracer.value(0, like=torch.int64), length.long(), tracer.value(1, like=torch.int64)]
    return tracer.emit("Range", limits, (dim,), torch.int64)


@dataclass(frozen=True)
class RaggedAttention:
    """Attention of rows of different lengths, padded on the right, to themselves or to a source; nothing is kept."""

    query_positions: Value  # (T,)
    key_positions: Value  # (T,)
    last_positions: Value  # (B,) int32: of each row's last real token
    total_length: Value  # () int32: T
    source: Any = None  # (B, T, d_model), its rows as long
    _biases: dict[int, Value] = field(default_factory=dict)  # of windows

    def to(self, source: Any) -> Self:
        """Return the attention to a source (B, T, d_model) of the same lengths."""
        return replace(self, source=source)

    def keys_and_values(self, layer: MultiHeadAttention, x: Any) -> Pair:
        """Return the keys and values of x, or of the source."""
        key, value = layer.keys_and_values(x if self.source is None else self.source)
        return as_value(key), as_value(value)

    def attend(self, layer: MultiHeadAttention, query: Value, key: Value, value: Value, bias: Value | None) -> Value:
        """Attend from query (B, T, H·D) to key and value (B, T, K·D); returns anything at padding."""
        if layer.window is not None and not layer.is_causal:  # the operator knows windows of what came before only
            hides = self._hiding(layer.window, query.dtype)
            bias = hides if bias is None else bias + hides
        lengths = self.last_positions, self.total_length
        return group_query_attention(layer, query, key, value, None, *lengths, bias, is_causal=layer.is_causal)[0]

    def _hiding(self, window: int, dtype: torch.dtype) -> Value:
        """Return a bias (1, 1, T, T) that is 0 within a window and the least number outside, one for all layers."""
        if window not in self._biases:
            positions = as_tensor(self.query_positions), as_tensor(self.key_positions)
            sees = visible(*positions, is_causal=False, window=window)
            self._biases[window] = as_value(torch.where(sees, 0.0, torch.finfo(dtype).min)[None, None])
        return self._biases[window]


@dataclass(frozen=True)
class CachedAttention:
    """Self-attention of new tokens, to themselves and to what came before; keys and values are kept.

    With a past, rows must bring one new token each, or there must be a single row (a chunk of a long prompt). Without
    one, rows may be ragged and padded on the right.
    """

    query_positions: Value  # (B, T)
    key_positions: Value  # (total_length,)
    last_positions: Value  # (B,) int32: of each row's last real new token
    total_length: Value  # () int32: the longest row, its new tokens included
    past: list[Pair]  # of each layer, (B, K, S, D), S being the cache's capacity
    present: list[Pair] = field(default_factory=list)  # the same with the new tokens, in place

    def keys_and_values(self, layer: MultiHeadAttention, x: Any) -> Pair:
        """Return the keys and values of x."""
        key, value = layer.keys_and_values(x)
        return as_value(key), as_value(value)

    def attend(self, layer: MultiHeadAttention, query: Value, key: Value, value: Value, bias: Value | None) -> Value:
        """Attend from query (B, T, H·D) to the past and the new key and value (B, T, K·D)."""
        past, lengths = self.past[layer.index], (self.last_positions, self.total_length)
        output, *present = group_query_attention(layer, query, key, value, past, *lengths, bias)
        self.present.append((present[0], present[1]))
        return output


@dataclass(frozen=True)
class CachedCrossAttention:
    """Attention to a source whose keys and values were projected once, when the sequence was admitted.

    The operator that knows each row's own length appends before it attends. So it is handed the source's last token
    once more, and puts it where it already is; rows bring one new token each.
    """

    # Of the target's tokens, both: nobody asks where a token of a source stands, which has no windows and no distances.
    query_positions: Value  # (B, T)
    key_positions: Value  # (B, T)
    last_positions: Value  # (B,) int32: of the source's last token
    total_length: Value  # () int32: the longest source
    source: list[Pair]  # of each layer, (B, K, S, D)
    last: list[Pair]  # of each layer, those of the source's last token, (B, 1, K·D)
    kept: list[Pair] = field(default_factory=list)  # the source unchanged, in place

    def keys_and_values(self, layer: MultiHeadAttention, x: Value) -> Pair:
        """Return those of the source's last token."""
        return self.last[layer.index]

    def attend(self, layer: MultiHeadAttention, query: Value, key: Value, value: Value, bias: Value | None) -> Value:
        """Attend from query (B, 1, H·D) to the source."""
        source, lengths = self.source[layer.index], (self.last_positions, self.total_length)
        output, *kept = group_query_attention(layer, query, key, value, source, *lengths, bias)
        self.kept.append((kept[0], kept[1]))
        return output
