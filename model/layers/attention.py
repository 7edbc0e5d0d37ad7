"""Scaled dot-product and multi-head attention (Vaswani et al. 2017, section 3.2).

Letters in shape comments: B batch, T query length, S key length, H query heads, K key/value heads, D head width.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from model.layers.cache import CrossAttentionCache, SelfAttentionCache
    from model.layers.ragged import RaggedSelfAttention


def scaled_dot_product_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return softmax(Q Kᵀ / √D) V, equation 1 of the paper.

    query (B, H, T, D), key and value (B, K, S, D) with H a multiple of K; mask broadcasts to (B, H, T, S) and is True
    where a query may look. Returns (B, H, T, D).
    """
    return attention_weights(query, key, mask) @ repeat_heads(value, query.shape[1])


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return softmax(Q Kᵀ / √D): how much each query looks at each key, (B, H, T, S)."""
    scores = query @ repeat_heads(key, query.shape[1]).transpose(-1, -2) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1)


def repeat_heads(x: Tensor, num_heads: int) -> Tensor:
    """Give every query head its key/value head: (B, K, S, D) → (B, H, S, D) (Ainslie et al. 2023, GQA)."""
    return x if x.shape[1] == num_heads else x.repeat_interleave(num_heads // x.shape[1], dim=1)


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """Return the (T, T) mask that lets position t see positions up to t."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def padding_mask(attention_mask: Tensor) -> Tensor:
    """Turn (B, S), True or 1 at real tokens, into a mask over keys, (B, 1, 1, S)."""
    return attention_mask.bool()[:, None, None, :]


class MultiHeadAttention(nn.Module):
    """Attention in `num_heads` subspaces at once; self-attention, or cross-attention where a source is given."""

    def __init__(self, d_model: int, num_heads: int, num_kv_heads: int) -> None:
        super().__init__()
        self.head_dim = d_model // num_heads
        self.query = nn.Linear(d_model, num_heads * self.head_dim)
        self.key = nn.Linear(d_model, num_kv_heads * self.head_dim)
        self.value = nn.Linear(d_model, num_kv_heads * self.head_dim)
        self.output = nn.Linear(num_heads * self.head_dim, d_model)

    def forward(self, x: Tensor, source: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Attend from x (B, T, d_model) to the source (B, S, d_model), or to x itself; returns (B, T, d_model)."""
        key, value = self.project_source(x if source is None else source)
        return self._merge(scaled_dot_product_attention(self._split(self.query(x)), key, value, mask))

    def project_source(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of a source (B, S, d_model), each (B, K, S, D)."""
        return self._split(self.key(source)), self._split(self.value(source))

    def forward_cached(self, x: Tensor, cache: SelfAttentionCache | RaggedSelfAttention) -> Tensor:
        """Attend from the new tokens x (B, T, d_model) to themselves and to everything in the cache."""
        return self.output(cache.attend(self.query(x), self.key(x), self.value(x)))

    def forward_cross_cached(self, x: Tensor, cache: CrossAttentionCache) -> Tensor:
        """Attend from x (B, T, d_model) to a source whose keys and values were projected once."""
        return self.output(cache.attend(self.query(x)))

    def _split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # (B, T, H·D) → (B, H, T, D)

    def _merge(self, x: Tensor) -> Tensor:
        return self.output(x.transpose(1, 2).flatten(2))  # (B, H, T, D) → (B, T, d_model)
