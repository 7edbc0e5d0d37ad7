"""The smallest configurations that have what a test of a layer looks at."""

from __future__ import annotations

from typing import Any

from model.config import AttentionConfig, FeedForwardConfig, TransformerConfig


def decoder(**choices: Any) -> TransformerConfig:
    """Return a decoder of two blocks, 32 wide, with four heads."""
    defaults: dict[str, Any] = {"attention": AttentionConfig(4), "feed_forward": FeedForwardConfig(48)}
    sizes = {"vocab_size": 50, "d_model": 32, "num_decoder_layers": 2, "max_positions": 64, "dropout": 0.0}
    return TransformerConfig("decoder", **{**sizes, **defaults, **choices})
