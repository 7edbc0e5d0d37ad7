"""The sizes of published encoder–decoders, by the names that they are published under."""

from __future__ import annotations

from model.config import (
    Activation,
    AttentionConfig,
    EmbeddingsConfig,
    FeedForwardConfig,
    HeadConfig,
    NormConfig,
    NormPlacement,
    PositionKind,
    PositionsConfig,
    RelativeConfig,
    TransformerConfig,
)


def _t5(
    d_model: int, d_ff: int, num_heads: int, num_layers: int, *, vocab_size: int = 32128, is_first: bool = False
) -> TransformerConfig:
    """Return a T5: the first version, or 1.1, which has gated networks and an output matrix of its own."""
    attention = AttentionConfig(
        num_heads, head_dim=64, qkv_bias=False, output_bias=False, scale=1.0, relative=RelativeConfig("bucketed")
    )
    activation: Activation = "relu" if is_first else "gelu-tanh"
    return TransformerConfig(
        architecture="encoder_decoder",
        vocab_size=vocab_size,
        d_model=d_model,
        attention=attention,
        feed_forward=FeedForwardConfig(d_ff, activation, gated=not is_first, bias=False),
        num_encoder_layers=num_layers,
        num_decoder_layers=num_layers,
        positions=PositionsConfig("none"),
        norm=NormConfig("rms", epsilon=1e-6, bias=False),
        head=HeadConfig(scale=d_model**-0.5) if is_first else HeadConfig(tied=False),
    )


def _bart(
    vocab_size: int,
    d_model: int,
    num_heads: int,
    num_layers: int,
    activation: Activation = "gelu",
    *,
    d_ff: int | None = None,
    placement: NormPlacement = "post",
    positions: PositionKind = "learned",
    max_positions: int = 1024,
    scale: bool = True,
) -> TransformerConfig:
    is_fairseq = positions == "sinusoidal-fairseq"
    return TransformerConfig(
        architecture="encoder_decoder",
        vocab_size=vocab_size,
        d_model=d_model,
        attention=AttentionConfig(num_heads),
        feed_forward=FeedForwardConfig(d_ff or 4 * d_model, activation),
        num_encoder_layers=num_layers,
        num_decoder_layers=num_layers,
        max_positions=max_positions,
        positions=PositionsConfig(positions, offset=2 if is_fairseq else 0),
        norm=NormConfig(placement=placement),
        embeddings=EmbeddingsConfig(scale=scale, norm=positions == "learned"),
        head=HeadConfig(bias=not is_fairseq),
    )


SEQ2SEQ: dict[str, TransformerConfig] = {
    # Raffel et al. 2020.
    "t5-small": _t5(512, 2048, 8, 6, is_first=True),
    "t5-base": _t5(768, 3072, 12, 12, is_first=True),
    # Chung et al. 2022.
    "flan-t5-small": _t5(512, 1024, 6, 8),
    "flan-t5-base": _t5(768, 2048, 12, 12),
    # Xue et al. 2021.
    "mt5-small": _t5(512, 1024, 6, 8, vocab_size=250112),
    # Tiedemann and Thottingal 2020, with the vocabulary of English and German.
    "opus-mt": _bart(58101, 512, 8, 6, "silu", positions="sinusoidal-halves", max_positions=512),
    # Lewis et al. 2020.
    "bart-base": _bart(50265, 768, 12, 6, scale=False),
    "bart-large": _bart(50265, 1024, 16, 12, scale=False),
    # Tang et al. 2020.
    "mbart-large-50": _bart(250054, 1024, 16, 12, placement="pre"),
    # Fan et al. 2020; NLLB Team 2022.
    "m2m100-418m": _bart(128112, 1024, 16, 12, "relu", placement="pre", positions="sinusoidal-fairseq"),
    "nllb-200-distilled-600m": _bart(256206, 1024, 16, 12, "relu", placement="pre", positions="sinusoidal-fairseq"),
    # Zhang et al. 2020.
    "pegasus-large": _bart(96103, 1024, 16, 16, "relu", placement="pre", positions="sinusoidal-halves"),
}
