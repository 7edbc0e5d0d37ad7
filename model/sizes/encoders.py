"""The sizes of published encoders, by the names that they are published under, with the heads of their pretraining."""

from __future__ import annotations

from dataclasses import replace

from model.config import (
    AttentionConfig,
    EmbeddingsConfig,
    FeedForwardConfig,
    HeadConfig,
    NormConfig,
    PositionsConfig,
    RelativeConfig,
    TransformerConfig,
)

_FILL = HeadConfig("fill", dense=True, activation="gelu", norm=True, bias=True)


def _encoder(
    vocab_size: int, num_layers: int = 12, *, segments: int = 1, epsilon: float = 1e-5, d_model: int = 768
) -> TransformerConfig:
    """Return a BERT of a width, with heads of 64 and four times as wide within."""
    return TransformerConfig(
        architecture="encoder",
        vocab_size=vocab_size,
        d_model=d_model,
        attention=AttentionConfig(12),
        feed_forward=FeedForwardConfig(4 * d_model),
        num_encoder_layers=num_layers,
        norm=NormConfig(placement="post", epsilon=epsilon),
        embeddings=EmbeddingsConfig(norm=True, segments=segments),
        head=_FILL,
    )


def _modernbert(d_model: int, d_ff: int, num_heads: int, num_layers: int) -> TransformerConfig:
    """Return a ModernBERT: every third layer sees everything."""
    local = tuple(layer for layer in range(num_layers) if layer % 3)
    return TransformerConfig(
        architecture="encoder",
        vocab_size=50368,
        d_model=d_model,
        attention=AttentionConfig(num_heads, qkv_bias=False, output_bias=False, window=128, local_layers=local),
        feed_forward=FeedForwardConfig(d_ff, gated=True, bias=False),
        num_encoder_layers=num_layers,
        max_positions=8192,
        positions=PositionsConfig("rotary", base=160000.0, local_base=10000.0),
        norm=NormConfig(bias=False, skips_first=True),
        embeddings=EmbeddingsConfig(norm=True),
        head=replace(_FILL, dense_bias=False),
        dropout=0.0,
    )


def _deberta_v3(num_layers: int) -> TransformerConfig:
    base = _encoder(128100, num_layers, segments=0, epsilon=1e-7)
    return replace(
        base,
        attention=replace(base.attention, relative=RelativeConfig("disentangled", 256, 512)),
        positions=PositionsConfig("none"),
    )


ENCODERS: dict[str, TransformerConfig] = {
    # Wang et al. 2020, MiniLM, as sentence-transformers made vectors of it (all-MiniLM-L6-v2).
    "minilm-l6": replace(
        _encoder(30522, 6, segments=2, epsilon=1e-12, d_model=384), head=HeadConfig("embed", pooling="mean")
    ),
    # Sanh et al. 2019.
    "distilbert": _encoder(30522, 6, segments=0, epsilon=1e-12),
    # Liu et al. 2019; Conneau et al. 2020; Martin et al. 2020. Of their 514 positions two belong to no token.
    "roberta-base": _encoder(50265),
    "xlm-roberta-base": _encoder(250002),
    "camembert-base": _encoder(32005),
    # Warner et al. 2024.
    "modernbert-base": _modernbert(768, 1152, 12, 22),
    "modernbert-large": _modernbert(1024, 2624, 16, 28),
    # He et al. 2023.
    "deberta-v3-small": _deberta_v3(6),
    "deberta-v3-base": _deberta_v3(12),
}
