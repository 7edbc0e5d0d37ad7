"""Scaled dot-product and multi-head attention (Vaswani et al. 2017, section 3.2).

`FullAttention` computes everything anew, and is the definition. `model.export.attention` has the forms that an exported
graph attends with, over a cache and over rows of different lengths; they stand in its place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from model.config import TransformerConfig
from model.layers.norms import RMSNorm
from model.layers.rotary import Rotary


def attention_weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """Return softmax(Q Kᵀ · scale + bias): how much each query looks at each key, (B, H, T, S).

    query (B, H, T, D), key (B, K, S, D) with H a multiple of K; mask, True where a query may look, and bias broadcast
    to (B, H, T, S); the scale is 1/√D unless given.
    """
    scores = query @ repeat_heads(key, query.shape[1]).transpose(-1, -2)
    scores = scores * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1)


def fused_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scale: float) -> Tensor:
    """Return softmax(Q Kᵀ · scale) V, (B, H, T, D), by one operator of torch, which a GPU is through with sooner.

    query (B, H, T, D), key and value (B, K, S, D), mask as of `attention_weights`. For a query that sees no key
    (padding behind a window) the result is meaningless, and differs from that of `attention_weights`.
    """
    key, value = (repeat_heads(each, query.shape[1]) for each in (key, value))
    return scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale)


def repeat_heads(x: Tensor, num_heads: int) -> Tensor:
    """Give every query head its key/value head: (B, K, S, D) → (B, H, S, D) (Ainslie et al. 2023, GQA)."""
    return x if x.shape[1] == num_heads else x.repeat_interleave(num_heads // x.shape[1], dim=1)


def visible(query_positions: Tensor, key_positions: Tensor, *, is_causal: bool, window: int | None = None) -> Tensor:
    """Return which keys (S,) a query at each position (…, T) may look at: (…, T, S).

    Causal: itself and what came before, with a window at most `window` tokens in all; else what is at most window / 2
    away (Beltagy et al. 2020, Longformer, section 3.1).
    """
    distance = query_positions[..., None] - key_positions
    if is_causal:
        sees = distance >= 0
        return sees if window is None else sees & (distance < window)
    return torch.ones_like(distance, dtype=torch.bool) if window is None else distance.abs() <= window // 2


class Attention(Protocol):
    """How the queries of a layer meet keys and values: all anew, or over a cache. Positions are those of the tokens."""

    @property
    def query_positions(self) -> Tensor:
        """Return those of the queries, (T,), or (B, T) where rows begin at different ones."""

    @property
    def key_positions(self) -> Tensor:
        """Return those of the keys, (S,)."""

    def keys_and_values(self, layer: MultiHeadAttention, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values that belong to x (B, T, d_model), each (B, S, K·D)."""

    def attend(
        self, layer: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None
    ) -> Tensor:
        """Attend from query (B, T, H·D) to key and value (B, S, K·D); returns (B, T, H·D)."""


class SelfAttention(Attention, Protocol):
    """Attention within texts that can also be to a source of the same lengths."""

    def to(self, source: Tensor) -> Attention:
        """Return the attention to a source (B, T, d_model)."""


@dataclass(frozen=True)
class FullAttention:
    """Every query meets every key that it may see; of a source, in cross-attention."""

    query_positions: Tensor  # (T,)
    key_positions: Tensor  # (S,)
    is_real: Tensor | None = None  # (B, S), True or 1 at keys that are not padding
    source: Tensor | None = None  # (B, S, d_model)

    @classmethod
    def within(cls, x: Tensor, is_real: Tensor | None = None) -> Self:
        """Return the self-attention of ids or embeddings x (B, T, …)."""
        positions = torch.arange(x.shape[1], device=x.device)
        return cls(positions, positions, is_real)

    @classmethod
    def across(cls, x: Tensor, source: Tensor, is_real: Tensor) -> Self:
        """Return the cross-attention from ids or embeddings x (B, T, …) to a source (B, S, d_model)."""
        query_positions, key_positions = (torch.arange(t.shape[1], device=t.device) for t in (x, source))
        return cls(query_positions, key_positions, is_real, source)

    def to(self, source: Tensor) -> Self:
        """Return the attention to a source (B, T, d_model) of the same lengths."""
        return replace(self, source=source)

    def keys_and_values(self, layer: MultiHeadAttention, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of x, or of the source."""
        return layer.keys_and_values(x if self.source is None else self.source)

    def attend(
        self, layer: MultiHeadAttention, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None
    ) -> Tensor:
        """Return softmax(Q Kᵀ · scale + bias) V, equation 1 of the paper, of each head."""
        query, key, value = layer.split(query), layer.split(key), layer.split(value)  # (B, H or K, T or S, D)
        if layer.rotary is not None:
            query = layer.rotary(query, self.query_positions)
            key = layer.rotary(key, self.key_positions)
        mask = self._mask(layer)
        if bias is None and _is_fused(query):
            return layer.merge(fused_attention(query, key, value, mask, scale=layer.scale))
        weights = attention_weights(query, key, mask, scale=layer.scale, bias=bias)  # (B, H, T, S)
        return layer.merge(weights @ repeat_heads(value, layer.num_heads))

    def _mask(self, layer: MultiHeadAttention) -> Tensor | None:
        """Return which keys each query may look at, to broadcast to (B, H, T, S); none where each sees all."""
        is_real = None if self.is_real is None else self.is_real.bool()[:, None, None, :]
        if not layer.is_causal and layer.window is None:
            return is_real
        mask = visible(self.query_positions, self.key_positions, is_causal=layer.is_causal, window=layer.window)
        return mask if is_real is None else mask & is_real


def _is_fused(query: Tensor) -> bool:
    """Whether one operator attends; on a CPU it takes longer."""
    return query.is_cuda


class MultiHeadAttention(nn.Module):
    """Attention in `num_heads` subspaces at once, each with its own maps of query, key and value."""

    def __init__(
        self,
        config: TransformerConfig,
        index: int = 0,
        *,
        is_causal: bool = False,
        window: int | None = None,
        rotary: Rotary | None = None,
    ) -> None:
        super().__init__()
        attention = config.attention
        self.num_heads, self.num_kv_heads, self.head_dim = attention.num_heads, config.kv_heads, config.head_dim
        self.scale = attention.scale or 1 / math.sqrt(config.head_dim)
        self.index = index  # of its block in the stack
        self.is_causal, self.window, self.rotary = is_causal, window, rotary
        width, kv_width = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        self.query = nn.Linear(config.d_model, width, bias=attention.qkv_bias)
        self.key = nn.Linear(config.d_model, kv_width, bias=attention.qkv_bias)
        self.value = nn.Linear(config.d_model, kv_width, bias=attention.qkv_bias)
        self.output = nn.Linear(width, config.d_model, bias=attention.output_bias)
        has_norms, self.normalises_heads = attention.qk_norm, attention.qk_norm_of == "head"
        widths = (config.head_dim, config.head_dim) if self.normalises_heads else (width, kv_width)
        self.query_norm = RMSNorm(widths[0], config.norm.epsilon) if has_norms else nn.Identity()
        self.key_norm = RMSNorm(widths[1], config.norm.epsilon) if has_norms else nn.Identity()

    def forward(self, x: Tensor, attention: Attention, relative: Tensor | None = None) -> Tensor:
        """Attend from x (B, T, d_model), as `attention` does; returns (B, T, d_model).

        `relative` is what a stack's relative positions add to the scores, and broadcasts to (B, H, T, S).
        """
        query = self._normalised(self.query(x), self.query_norm)
        key, value = attention.keys_and_values(self, x)
        bias = self.bias(query, key, relative)
        return self.output(attention.attend(self, query, key, value, bias))

    def keys_and_values(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Return the keys and values of a source (B, S, d_model), each (B, S, K·D)."""
        return self._normalised(self.key(source), self.key_norm), self.value(source)

    def bias(self, query: Tensor, key: Tensor, relative: Tensor | None) -> Tensor | None:
        """Return what is added to the scores."""
        return relative

    def split(self, x: Tensor) -> Tensor:
        """Cut into heads: (B, T, H·D) → (B, H, T, D)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def merge(self, x: Tensor) -> Tensor:
        """Lay heads side by side: (B, H, T, D) → (B, T, H·D)."""
        return x.transpose(1, 2).flatten(2)

    def _normalised(self, x: Tensor, norm: nn.Module) -> Tensor:
        if isinstance(norm, nn.Identity) or not self.normalises_heads:
            return norm(x)
        return norm(x.unflatten(-1, (-1, self.head_dim))).flatten(-2)
