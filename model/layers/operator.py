"""Attention as one operator of ONNX Runtime: what stands in an exported graph in the place of `FullAttention`.

`com.microsoft.GroupQueryAttention` knows each row's own length, so padding costs nothing; it updates keys and values in
place, and turns them by their positions. These forms only emit it: they compute nothing outside an export.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from model.layers.attention import MultiHeadAttention, visible


def positions_below(total_length: Tensor, capacity: int) -> Tensor:
    """Emit the positions 0, 1, … below total_length (), as (total_length,); torch takes it for `capacity` long."""
    limits = torch.tensor(0), total_length.long(), torch.tensor(1)
    emitted: Tensor = torch.onnx.ops.symbolic("Range", limits, dtype=torch.int64, shape=(capacity,))
    return emitted


Pair = tuple[Tensor, Tensor]  # a key and a value


def group_query_attention(
    layer: MultiHeadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past: Pair | None,
    last_positions: Tensor,
    total_length: Tensor,
    bias: Tensor | None,
    *,
    is_causal: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
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
    tables: list[Tensor | None] = []
    if layer.rotary is not None:
        attributes["do_rotary"] = 1
        tables = [layer.rotary.cos, layer.rotary.sin]
    if bias is not None:
        tables = [*(tables or [None, None]), None, bias]  # between them the positions, which the operator knows
    past_key, past_value = past or (None, None)
    shape = (query.shape[0], layer.num_kv_heads, query.shape[1], layer.head_dim) if past is None else past[0].shape
    output, present_key, present_value = torch.onnx.ops.symbolic_multi_out(
        "com.microsoft::GroupQueryAttention",
        (query, key, value, past_key, past_value, last_positions, total_length, *tables),
        attrs=attributes,
        dtypes=(query.dtype, key.dtype, value.dtype),
        shapes=(query.shape, shape, shape),
        version=1,
    )
    return output, present_key, present_value


@dataclass(frozen=True)
class RaggedAttention:
    """Attention of rows of different lengths, padded on the right, to themselves or to a source; nothing is kept."""

    query_positions: Tensor  # (T,)
    key_positions: Tensor  # (T,)
    last_positions: Tensor  # (B,) int32: of each row's last real token
    total_length: Tensor  # () int32: T
    source: Tensor | None = None  # (B, T, d_model), its rows as long

    def to(self, source: Tensor) -> Self:
        """Return the attention to a source (B, T, d_model) of the same lengths."""
        return replace(self, source=source)

    def keys_and_values(self, layer: MultiHeadAttention, x: Tensor) -> Pair:
        """Return the keys and values of x, or of the source."""
        return layer.keys_and_values(x if self.source is None else self.source)

    def attend(
        self, layer: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None
    ) -> Tensor:
        """Attend from query (B, T, H·D) to key and value (B, T, K·D); returns anything at padding."""
        if layer.window is not None and not layer.is_causal:  # the operator knows windows of what came before only
            bias = self._window(layer, query.dtype) if bias is None else bias + self._window(layer, query.dtype)
        lengths = self.last_positions, self.total_length
        return group_query_attention(layer, query, key, value, None, *lengths, bias, is_causal=layer.is_causal)[0]

    def _window(self, layer: MultiHeadAttention, dtype: torch.dtype) -> Tensor:
        """Return a bias (1, 1, T, T) that is 0 within the window and the least number outside."""
        sees = visible(self.query_positions, self.key_positions, is_causal=False, window=layer.window)
        return torch.where(sees, 0.0, torch.finfo(dtype).min).to(dtype)[None, None]


@dataclass(frozen=True)
class CachedAttention:
    """Self-attention of new tokens, to themselves and to what came before; keys and values are kept.

    With a past, rows must bring one new token each, or there must be a single row (a chunk of a long prompt). Without
    one, rows may be ragged and padded on the right.
    """

    query_positions: Tensor  # (B, T)
    key_positions: Tensor  # (total_length,)
    last_positions: Tensor  # (B,) int32: of each row's last real new token
    total_length: Tensor  # () int32: the longest row, its new tokens included
    past: list[Pair]  # of each layer, (B, K, S, D), S being the cache's capacity
    present: list[Pair] = field(default_factory=list)  # the same with the new tokens, in place

    def keys_and_values(self, layer: MultiHeadAttention, x: Tensor) -> Pair:
        """Return the keys and values of x."""
        return layer.keys_and_values(x)

    def attend(
        self, layer: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None
    ) -> Tensor:
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

    query_positions: Tensor  # (B, T)
    key_positions: Tensor  # (S,)
    last_positions: Tensor  # (B,) int32: of the source's last token
    total_length: Tensor  # () int32: the longest source
    source: list[Pair]  # of each layer, (B, K, S, D)
    last: list[Pair]  # of each layer, those of the source's last token, (B, 1, K·D)
    kept: list[Pair] = field(default_factory=list)  # the source unchanged, in place

    def keys_and_values(self, layer: MultiHeadAttention, x: Tensor) -> Pair:
        """Return those of the source's last token."""
        return self.last[layer.index]

    def attend(
        self, layer: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None
    ) -> Tensor:
        """Attend from query (B, 1, H·D) to the source."""
        source, lengths = self.source[layer.index], (self.last_positions, self.total_length)
        output, *kept = group_query_attention(layer, query, key, value, source, *lengths, bias)
        self.kept.append((kept[0], kept[1]))
        return output
