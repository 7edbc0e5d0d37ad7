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
    RotaryScaling,
    TransformerConfig,
)
from model.sizes.decoders import DECODERS

_FILL = HeadConfig("fill", dense=True, activation="gelu", norm=True, bias=True)


def _encoder(
    vocab_size: int,
    num_layers: int = 12,
    *,
    segments: int = 1,
    epsilon: float = 1e-5,
    d_model: int = 768,
    num_heads: int = 12,
) -> TransformerConfig:
    """Return a BERT of a width, four times as wide within."""
    return TransformerConfig(
        architecture="encoder",
        vocab_size=vocab_size,
        d_model=d_model,
        attention=AttentionConfig(num_heads),
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


def _albert() -> TransformerConfig:
    """Return a BERT whose layers are one."""
    return replace(
        _encoder(30000, segments=2, epsilon=1e-12),
        feed_forward=FeedForwardConfig(3072, "gelu-tanh"),
        shared_layers=True,
        embeddings=EmbeddingsConfig(norm=True, segments=2, width=128),
        head=replace(_FILL, activation="gelu-tanh"),
        dropout=0.0,
    )


def _gte() -> TransformerConfig:
    """Return a BERT with rotary positions of a base that was doubled, and GeGLU."""
    return replace(
        _encoder(30528, segments=0, epsilon=1e-12),
        feed_forward=FeedForwardConfig(3072, gated=True),
        max_positions=8192,
        positions=PositionsConfig("rotary", base=1e6, scaling=RotaryScaling(2 ** (1 / 32))),
        head=HeadConfig("embed"),
    )


def _jina() -> TransformerConfig:
    """Return a BERT whose scores fall with the distance, with GeGLU."""
    return replace(
        _encoder(30528, segments=2, epsilon=1e-12),
        attention=AttentionConfig(12, relative=RelativeConfig("linear")),
        feed_forward=FeedForwardConfig(3072, gated=True),
        max_positions=8192,
        positions=PositionsConfig("none"),
        head=HeadConfig("embed"),
    )


def _nomic() -> TransformerConfig:
    """Return a BERT with rotary positions, SwiGLU and no biases."""
    base = _encoder(30528, segments=2, epsilon=1e-12)
    return replace(
        base,
        attention=AttentionConfig(12, qkv_bias=False, output_bias=False),
        feed_forward=FeedForwardConfig(3072, "silu", gated=True, bias=False),
        max_positions=2048,
        positions=PositionsConfig("rotary", base=1000.0),
        head=HeadConfig("embed"),
        dropout=0.0,
    )


def _embedding_gemma() -> TransformerConfig:
    """Return a Gemma 3 that sees both ways, without the maps behind pooling."""
    base = DECODERS["gemma-3-270m"]
    local = tuple(layer for layer in range(24) if (layer + 1) % 6)
    return replace(
        base,
        architecture="encoder",
        d_model=768,
        attention=replace(base.attention, num_heads=3, local_layers=local),
        feed_forward=replace(base.feed_forward, d_ff=1152),
        num_decoder_layers=0,
        num_encoder_layers=24,
        max_positions=2048,
        head=HeadConfig("embed"),
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
    # Song et al. 2020; all-mpnet-base-v2 has the same sizes.
    "mpnet-base": replace(
        _encoder(30527, segments=0), attention=AttentionConfig(12, relative=RelativeConfig("bucketed", 32))
    ),
    # Clark et al. 2020.
    "electra-small-generator": replace(
        _encoder(30522, segments=2, epsilon=1e-12, d_model=256, num_heads=4),
        embeddings=EmbeddingsConfig(norm=True, segments=2, width=128),
    ),
    # Lan et al. 2020.
    "albert-base": _albert(),
    # Zhang et al. 2024.
    "gte-base-en-v1.5": _gte(),
    # Günther et al. 2023.
    "jina-embeddings-v2-base-en": _jina(),
    # Nussbaum et al. 2024; Schechter Vera et al. 2025.
    "nomic-embed-text-v1.5": _nomic(),
    "embeddinggemma-300m": _embedding_gemma(),
    # Warner et al. 2024.
    "modernbert-base": _modernbert(768, 1152, 12, 22),
    "modernbert-large": _modernbert(1024, 2624, 16, 28),
    # He et al. 2023.
    "deberta-v3-small": _deberta_v3(6),
    "deberta-v3-base": _deberta_v3(12),
}
