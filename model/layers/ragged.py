"""Self-attention over rows of different lengths, padded on the right, each row seeing all of itself.

In the exported graph it is one operator that computes only what each row's length asks for. Letters: B batch, T length,
H query heads, K key/value heads, D head width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from model.layers.attention import scaled_dot_product_attention


@dataclass
class RaggedSelfAttention:
    """What an encoder's blocks attend with; nothing is kept."""

    last_positions: Tensor  # (B,) int32: position of each row's last real token
    total_length: Tensor  # () int32: T
    num_heads: int
    num_kv_heads: int

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attend from query (B, T, H·D) to key and value (B, T, K·D); returns (B, T, H·D), anything at padding."""
        return (self._emit_operator if torch.onnx.is_in_onnx_export() else self._compute)(query, key, value)

    def _emit_operator(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        head_dim = query.shape[-1] // self.num_heads
        present = (query.shape[0], self.num_kv_heads, query.shape[1], head_dim)
        output, _, _ = torch.onnx.ops.symbolic_multi_out(
            "com.microsoft::GroupQueryAttention",
            (query, key, value, None, None, self.last_positions, self.total_length),
            attrs={"num_heads": self.num_heads, "kv_num_heads": self.num_kv_heads, "causal": 0},
            dtypes=(query.dtype, query.dtype, query.dtype),
            shapes=(query.shape, present, present),
            version=1,
        )
        return output

    def _compute(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        split_query, split_key, split_value = (
            x.unflatten(-1, (heads, -1)).transpose(1, 2)
            for x, heads in ((query, self.num_heads), (key, self.num_kv_heads), (value, self.num_kv_heads))
        )
        mask = (torch.arange(key.shape[1]) <= self.last_positions[:, None])[:, None, None, :]
        output = scaled_dot_product_attention(split_query, split_key, split_value, mask)
        return output.transpose(1, 2).flatten(2)
