"""The sizes of the papers by name, and those of the bundled packages."""

from __future__ import annotations

from dataclasses import replace

from model.config import (
    AttentionConfig,
    Distillation,
    EmbeddingsConfig,
    FeedForwardConfig,
    HeadConfig,
    HeadKind,
    NormConfig,
    PositionsConfig,
    TransformerConfig,
    VisionConfig,
)
from model.sizes.decoders import DECODERS
from model.sizes.encoders import ENCODERS
from model.sizes.seq2seq import SEQ2SEQ


def default_head(kind: HeadKind, num_labels: int = 0) -> HeadConfig:
    """Return BERT's head of a kind (Devlin et al. 2019); for vectors, that of the bundled package."""
    if kind == "classify":
        return HeadConfig("classify", num_labels, dense=True, bias=True)
    if kind in {"tag", "answer"}:
        return HeadConfig(kind, num_labels, bias=True)
    if kind in {"fill", "sparse", "pretrain"}:
        return HeadConfig(kind, dense=True, activation="gelu", norm=True, bias=True)
    return HeadConfig("embed", pooling="weighted", normalise=True) if kind == "embed" else HeadConfig()


def _bert(d_model: int, d_ff: int, num_heads: int, num_layers: int) -> TransformerConfig:
    return TransformerConfig(
        architecture="encoder",
        vocab_size=30522,
        d_model=d_model,
        attention=AttentionConfig(num_heads),
        feed_forward=FeedForwardConfig(d_ff),
        num_encoder_layers=num_layers,
        norm=NormConfig(placement="post", epsilon=1e-12),
        embeddings=EmbeddingsConfig(norm=True, segments=2),
        head=default_head("classify", 2),
    )


def _vit(d_model: int, d_ff: int, num_heads: int, num_layers: int, vision: VisionConfig) -> TransformerConfig:
    return TransformerConfig(
        architecture="vision",
        vocab_size=0,
        d_model=d_model,
        attention=AttentionConfig(num_heads),
        feed_forward=FeedForwardConfig(d_ff),
        num_encoder_layers=num_layers,
        max_positions=vision.num_tokens,
        head=HeadConfig("classify", 1000, bias=True),
        vision=vision,
    )


def _published_vit(
    d_model: int, num_heads: int, num_layers: int, distillation: Distillation = "none"
) -> TransformerConfig:
    config = _vit(d_model, 4 * d_model, num_heads, num_layers, VisionConfig(224, 16, distillation=distillation))
    return replace(config, norm=NormConfig(epsilon=1e-12), dropout=0.0)


# Vaswani et al. 2017, table 3, base; the 37k shared BPE of its WMT en-de.
_TRANSFORMER_BASE = TransformerConfig(
    architecture="encoder_decoder",
    vocab_size=37000,
    d_model=512,
    attention=AttentionConfig(8),
    feed_forward=FeedForwardConfig(2048, "relu"),
    num_encoder_layers=6,
    num_decoder_layers=6,
    positions=PositionsConfig("sinusoidal"),
    norm=NormConfig(placement="post"),
    embeddings=EmbeddingsConfig(scale=True),
)

# Radford et al. 2018: twelve decoder layers, post-norm, 512 positions, 117 M parameters.
_GPT = TransformerConfig(
    architecture="decoder",
    vocab_size=40478,
    d_model=768,
    attention=AttentionConfig(12),
    feed_forward=FeedForwardConfig(3072),
    num_decoder_layers=12,
    norm=NormConfig(placement="post"),
)

SIZES: dict[str, TransformerConfig] = {
    "transformer-base": _TRANSFORMER_BASE,
    # Jiao et al. 2020 (TinyBERT, 4 layers): the "BERT small" of 15 M parameters.
    "bert-small": _bert(312, 1200, 12, 4),
    # Devlin et al. 2019.
    "bert-base": _bert(768, 3072, 12, 12),
    "bert-large": _bert(1024, 4096, 16, 24),
    **ENCODERS,
    "gpt": _GPT,
    **DECODERS,
    **SEQ2SEQ,
    # Dosovitskiy et al. 2021, ViT-B/16 and ViT-L/16 on ImageNet; Touvron et al. 2021, the distilled ones.
    "vit-base": _published_vit(768, 12, 12),
    "vit-large": _published_vit(1024, 16, 24),
    "deit-tiny": _published_vit(192, 3, 12, "head"),
    "deit-small": _published_vit(384, 6, 12, "head"),
    "deit-base": _published_vit(768, 12, 12, "head"),
    # The bundled packages (model/bundled.md has what came of them).
    "mini-encoder": TransformerConfig(
        architecture="encoder",
        vocab_size=12000,
        d_model=256,
        attention=AttentionConfig(4),
        feed_forward=FeedForwardConfig(1024),
        num_encoder_layers=6,
        embeddings=EmbeddingsConfig(norm=True, segments=2),
        head=default_head("classify", 2),
    ),
    "mini-vision": replace(
        _vit(128, 512, 4, 5, VisionConfig(28, 4, num_channels=1, patch_overlap=4)),
        head=HeadConfig("classify", 10, bias=True),
    ),
    "stories": TransformerConfig(
        architecture="decoder",
        vocab_size=4096,
        d_model=256,
        attention=AttentionConfig(4),
        feed_forward=FeedForwardConfig(1024),
        num_decoder_layers=4,
    ),
    "translate": TransformerConfig(
        architecture="encoder_decoder",
        vocab_size=8000,
        d_model=256,
        attention=AttentionConfig(4),
        feed_forward=FeedForwardConfig(1024, "relu"),
        num_encoder_layers=4,
        num_decoder_layers=2,
        max_positions=256,
        positions=PositionsConfig("sinusoidal"),
        embeddings=EmbeddingsConfig(scale=True),
    ),
}
