"""Keys and values kept from step to step, as arguments and results and never as state of a module.

The exported graph carries them as inputs and outputs. Plain torch computes the same, so that tests can compare.
Letters: B batch, T new tokens, S capacity of the cache, H query heads, K key/value heads, D head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from model.layers.attention import scaled_dot_product_attention


@dataclass
class SelfAttentionCache:
    """Past keys and values of one layer; `attend` puts the new ones behind them, in place in the exported graph.

    With a past, rows must bring one new token each, or there must be a single row (a chunk of a long prompt). Without
    one, rows may be ragged and padded on the right.
    """

    key: Tensor  # (B, K, S, D)
    value: Tensor  # (B, K, S, D)
    last_positions: Tensor  # (B,) int32: position of each row's last real new token
    total_length: Tensor  # () int32: the longest row, its new tokens included
    num_heads: int

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend from query (B, T, H·D) to the past and the new key and value (B, T, K·D); returns (B, T, H·D)."""
        compute = self._emit_operator if torch.onnx.is_in_onnx_export() else self._compute
        output, self.key, self.value = compute(query, key, value)
        return output

    def _emit_operator(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        output, present_key, present_value = torch.onnx.ops.symbolic_multi_out(
            "com.microsoft::GroupQueryAttention",
            (query, key, value, self.key, self.value, self.last_positions, self.total_length),
            attrs={"num_heads": self.num_heads, "kv_num_heads": self.key.shape[1]},
            dtypes=(query.dtype, self.key.dtype, self.value.dtype),
            shapes=(query.shape, self.key.shape, self.value.shape),
            version=1,
        )
        return output, present_key, present_value

    def _compute(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (rows, new), (kv_heads, capacity, head_dim) = query.shape[:2], self.key.shape[1:]
        # A first prefill starts at 0 whatever its padding; later every row's new tokens end at its last position.
        is_first = int(self.total_length) == new
        first_positions = torch.zeros_like(self.last_positions) if is_first else self.last_positions - (new - 1)
        positions = first_positions[:, None] + torch.arange(new)  # (B, T)
        row_index = torch.arange(rows)[:, None]
        present_key, present_value = self.key.clone(), self.value.clone()
        present_key[row_index, :, positions] = key.unflatten(-1, (kv_heads, head_dim))
        present_value[row_index, :, positions] = value.unflatten(-1, (kv_heads, head_dim))
        mask = (torch.arange(capacity) <= positions[:, :, None])[:, None]  # (B, 1, T, S)
        split_query = query.unflatten(-1, (self.num_heads, head_dim)).transpose(1, 2)
        output = scaled_dot_product_attention(split_query, present_key, present_value, mask)
        return output.transpose(1, 2).flatten(2), present_key, present_value


@dataclass
class CrossAttentionCache:
    """Keys and values of a source, projected once when the sequence was admitted.

    The operator that knows each row's own length appends before it attends. So it is handed the source's last token
    once more, and puts it where it already is; rows bring one new token each.
    """

    key: Tensor  # (B, K, S, D)
    value: Tensor  # (B, K, S, D)
    last_key: Tensor  # (B, 1, K·D): of the source's last token
    last_value: Tensor  # (B, 1, K·D)
    last_positions: Tensor  # (B,) int32: position of the source's last token
    total_length: Tensor  # () int32: the longest source
    num_heads: int

    def attend(self, query: Tensor) -> Tensor:
        """Attend from query (B, 1, H·D) to the source; returns (B, 1, H·D)."""
        own = SelfAttentionCache(self.key, self.value, self.last_positions, self.total_length, self.num_heads)
        output = own.attend(query, self.last_key, self.last_value)
        self.key, self.value = own.key, own.value
        return output
