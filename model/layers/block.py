"""The block that encoders and decoders stack: attention and feed-forward, each with Add & Norm."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from model.config import TransformerConfig
from model.layers.attention import MultiHeadAttention
from model.layers.cache import CrossAttentionCache, SelfAttentionCache
from model.layers.feedforward import FeedForward
from model.layers.norms import LayerNorm
from model.layers.ragged import RaggedSelfAttention


class Residual(nn.Module):
    """Add & Norm around a sublayer: the norm after the sum (post, as published in 2017) or before it all (pre)."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.norm = LayerNorm(config.d_model, config.norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.is_pre_norm = config.norm_placement == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return x plus the sublayer's answer, normalised."""
        if self.is_pre_norm:
            return x + self.dropout(sublayer(self.norm(x)))
        normalised: Tensor = self.norm(x + self.dropout(sublayer(x)))
        return normalised


class Block(nn.Module):
    """Self-attention, optional cross-attention, feed-forward. One class for encoders and decoders."""

    def __init__(self, config: TransformerConfig, *, has_cross_attention: bool = False) -> None:
        super().__init__()

        def attention() -> MultiHeadAttention:
            return MultiHeadAttention(config.d_model, config.num_heads, config.kv_heads)

        self.self_attention = attention()
        self.self_attention_residual = Residual(config)
        self.cross_attention = attention() if has_cross_attention else None
        self.cross_attention_residual = Residual(config) if has_cross_attention else None
        self.feed_forward = FeedForward(config.d_model, config.d_ff, config.activation)
        self.feed_forward_residual = Residual(config)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, source: Tensor | None = None, source_mask: Tensor | None = None
    ) -> Tensor:
        """Transform x (B, T, d_model); masks broadcast to (B, H, T, keys), True where a query may look."""
        x = self.self_attention_residual(x, lambda h: self.self_attention(h, mask=mask))
        if self.cross_attention is not None and self.cross_attention_residual is not None:
            attend = self.cross_attention
            x = self.cross_attention_residual(x, lambda h: attend(h, source=source, mask=source_mask))
        return self.feed_forward_residual(x, self.feed_forward)

    def forward_cached(
        self,
        x: Tensor,
        cache: SelfAttentionCache | RaggedSelfAttention,
        cross_cache: CrossAttentionCache | None = None,
    ) -> Tensor:
        """Transform only the new tokens x (B, T, d_model); what came before is in the caches."""
        x = self.self_attention_residual(x, lambda h: self.self_attention.forward_cached(h, cache))
        if self.cross_attention is not None and self.cross_attention_residual is not None:
            attend = self.cross_attention.forward_cross_cached
            assert cross_cache is not None, "a block with cross-attention needs the source's keys and values"
            x = self.cross_attention_residual(x, lambda h: attend(h, cross_cache))
        return self.feed_forward_residual(x, self.feed_forward)
