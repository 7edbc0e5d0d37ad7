"""The block, attention and feed-forward, each with Add & Norm; and the stack of blocks that an architecture is made of.

One class of each for encoders and decoders; cross-attention is an optional member.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from model.config import FeedForwardConfig, TransformerConfig
from model.layers.activations import ACTIVATIONS
from model.layers.attention import Attention, MultiHeadAttention
from model.layers.norms import make_norm
from model.layers.relative import attention_kind, make_relative
from model.layers.rotary import Rotary, rotaries


class FeedForward(nn.Module):
    """Two linear maps with an activation between, at each position alone; a third is the gate."""

    def __init__(self, d_model: int, config: FeedForwardConfig) -> None:
        super().__init__()
        self.expand = nn.Linear(d_model, config.d_ff, bias=config.bias)
        self.gate = nn.Linear(d_model, config.d_ff, bias=config.bias) if config.gated else None
        self.activation = ACTIVATIONS[config.activation]()
        self.contract = nn.Linear(config.d_ff, d_model, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, d_model) to (B, T, d_model)."""
        if self.gate is None:
            return self.contract(self.activation(self.expand(x)))
        return self.contract(self.activation(self.gate(x)) * self.expand(x))


class Residual(nn.Module):
    """Add & Norm around a sublayer: the norm behind the sum, or before the sublayer, behind it, or both."""

    def __init__(self, config: TransformerConfig, *, has_norm: bool = True) -> None:
        super().__init__()
        self.placement, self.scale = config.norm.placement, config.residual_scale
        has_norm = has_norm and self.placement != "output"
        self.norm = make_norm(config.norm, config.d_model) if has_norm else nn.Identity()
        has_output_norm = self.placement in {"output", "sandwich"}
        self.output_norm = make_norm(config.norm, config.d_model) if has_output_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return x plus the sublayer's answer, normalised."""
        if self.placement == "post":
            return self.norm(x + self.dropout(sublayer(x)))
        return x + self.branch(x, sublayer)

    def branch(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what is added to x, unless the norm is behind the sum."""
        added = self.dropout(self.output_norm(sublayer(self.norm(x))))
        return added if self.scale == 1 else added * self.scale


class Block(nn.Module):
    """Self-attention, optional cross-attention, feed-forward: one behind the other, or the two beside each other."""

    def __init__(
        self,
        config: TransformerConfig,
        index: int,
        *,
        is_causal: bool,
        has_cross_attention: bool = False,
        rotary: Rotary | None = None,
    ) -> None:
        super().__init__()
        window = config.attention.window if index in config.attention.local_layers else None
        attention = attention_kind(config)
        self.self_attention = attention(config, index, is_causal=is_causal, window=window, rotary=rotary)
        self.self_attention_residual = Residual(config, has_norm=not (index == 0 and config.norm.skips_first))
        self.cross_attention = MultiHeadAttention(config, index) if has_cross_attention else None
        self.cross_attention_residual = Residual(config) if has_cross_attention else None
        self.feed_forward = FeedForward(config.d_model, config.feed_forward)
        self.feed_forward_residual = Residual(config)
        self.is_parallel = config.feed_forward.parallel

    def forward(
        self, x: Tensor, attention: Attention, cross: Attention | None = None, relative: Tensor | None = None
    ) -> Tensor:
        """Transform x (B, T, d_model)."""
        if self.is_parallel:
            attended = self.self_attention_residual.branch(x, lambda h: self.self_attention(h, attention, relative))
            return x + attended + self.feed_forward_residual.branch(x, self.feed_forward)
        x = self.self_attention_residual(x, lambda h: self.self_attention(h, attention, relative))
        if self.cross_attention is not None and self.cross_attention_residual is not None:
            attend = self.cross_attention
            assert cross is not None, "bug: a block with cross-attention needs a source"
            x = self.cross_attention_residual(x, lambda h: attend(h, cross))
        return self.feed_forward_residual(x, self.feed_forward)


class Stack(nn.Module):
    """Blocks one behind the other: an encoder, whose positions see one another, or a decoder, where `is_causal`."""

    def __init__(
        self, config: TransformerConfig, num_layers: int, *, is_causal: bool, has_cross_attention: bool = False
    ) -> None:
        super().__init__()
        self.rotary, self.local_rotary = rotaries(config)
        blocks = [
            Block(
                config,
                index,
                is_causal=is_causal,
                has_cross_attention=has_cross_attention,
                rotary=self._rotary_of(config, index),
            )
            for index in range(1 if config.shared_layers else num_layers)
        ]
        self.blocks = nn.ModuleList(blocks * num_layers if config.shared_layers else blocks)
        self.relative = make_relative(config, is_causal=is_causal)
        # Unless a norm is behind it, the sum of all blocks is not normalised, so one comes last (Xiong et al. 2020).
        is_post = config.norm.placement == "post"
        self.final_norm = nn.Identity() if is_post else make_norm(config.norm, config.d_model)

    def _rotary_of(self, config: TransformerConfig, index: int) -> Rotary | None:
        if index in config.positions.unturned_layers:
            return None
        return self.local_rotary if index in config.attention.local_layers else self.rotary

    def forward(self, x: Tensor, attention: Attention, cross: Attention | None = None) -> Tensor:
        """Map embeddings (B, T, d_model) to (B, T, d_model); `cross` is the attention to a source."""
        relative = None
        if self.relative is not None:
            relative = self.relative(attention.query_positions, attention.key_positions)
        for block in self.blocks:
            x = block(x, attention, cross, relative)
        return self.final_norm(x)
