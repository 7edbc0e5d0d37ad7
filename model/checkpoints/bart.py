"""BART (Lewis et al. 2020) and Marian (Junczys-Dowmunt et al. 2018): post-norm encoder–decoders, named alike.

BART learns its positions, each side its own, and normalises the embeddings; Marian computes its positions.
"""

from __future__ import annotations

from model.checkpoints.family import Family, HFConfig, Names, Parts, activation, norms_and_biases, require
from model.config import (
    AttentionConfig,
    EmbeddingsConfig,
    FeedForwardConfig,
    HeadConfig,
    NormConfig,
    PositionsConfig,
    TransformerConfig,
)


def _to_config(config: HFConfig, positions: PositionsConfig, *, norm: bool) -> TransformerConfig:
    require(config, tie_word_embeddings=True, share_encoder_decoder_embeddings=True)
    require(config, decoder_attention_heads=config["encoder_attention_heads"])
    require(config, decoder_ffn_dim=config["encoder_ffn_dim"])
    return TransformerConfig(
        architecture="encoder_decoder",
        vocab_size=config["vocab_size"],
        d_model=config["d_model"],
        attention=AttentionConfig(config["encoder_attention_heads"]),
        feed_forward=FeedForwardConfig(config["encoder_ffn_dim"], activation(config["activation_function"])),
        num_encoder_layers=config["encoder_layers"],
        num_decoder_layers=config["decoder_layers"],
        max_positions=config["max_position_embeddings"],
        positions=positions,
        norm=NormConfig(placement="post"),
        embeddings=EmbeddingsConfig(scale=config["scale_embedding"], norm=norm),
        head=HeadConfig(bias=True),
        dropout=config["dropout"],
    )


def bart_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a BART."""
    return _to_config(config, PositionsConfig("learned"), norm=True)


def marian_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a Marian model."""
    require(config, decoder_vocab_size=config["vocab_size"])
    return _to_config(config, PositionsConfig("sinusoidal-halves"), norm=False)


def _block(side: str, parts: tuple[str, ...]) -> dict[str, str]:
    theirs, ours = f"{side}.layers.{{}}", f"{side}.blocks.{{}}"
    attention = {"k_proj": "key", "v_proj": "value", "q_proj": "query", "out_proj": "output"}
    modules = {"fc1": "feed_forward.expand", "fc2": "feed_forward.contract"}
    modules["final_layer_norm"] = "feed_forward_residual.norm"
    for part in parts:
        name = {"self_attn": "self_attention", "encoder_attn": "cross_attention"}[part]
        modules[f"{part}_layer_norm"] = f"{name}_residual.norm"
        modules |= {f"{part}.{key}": f"{name}.{value}" for key, value in attention.items()}
    return norms_and_biases({f"{theirs}.{key}": f"{ours}.{value}" for key, value in modules.items()})


BLOCKS = {**_block("encoder", ("self_attn",)), **_block("decoder", ("self_attn", "encoder_attn"))}

SHARED: Names = {
    "shared.weight": "embeddings.words.weight",
    "encoder.embed_tokens.weight": "embeddings.words.weight",
    "decoder.embed_tokens.weight": "embeddings.words.weight",
    "lm_head.weight": "head.output.weight",
    "final_logits_bias": Parts(("head.bias",), lambda bias: (bias[0],)),
    **BLOCKS,
}

BART_DEFAULTS = {
    "vocab_size": 50265,
    "d_model": 1024,
    "encoder_layers": 12,
    "encoder_ffn_dim": 4096,
    "encoder_attention_heads": 16,
    "decoder_layers": 12,
    "decoder_ffn_dim": 4096,
    "decoder_attention_heads": 16,
    "max_position_embeddings": 1024,
    "activation_function": "gelu",
    "scale_embedding": False,
    "tie_word_embeddings": True,
    "share_encoder_decoder_embeddings": True,
    "dropout": 0.1,
}
MARIAN_DEFAULTS = {**BART_DEFAULTS, "vocab_size": 58101}

FIRST_POSITION = 2  # BART counts its positions from 2

BART = Family(
    bart_config,
    {
        **SHARED,
        **{
            f"{side}.embed_positions.weight": Parts((f"{ours}.positions.weight",), lambda w: (w[FIRST_POSITION:],))
            for side, ours in (("encoder", "embeddings"), ("decoder", "target_embeddings"))
        },
        **norms_and_biases(
            {
                "encoder.layernorm_embedding": "embeddings.norm",
                "decoder.layernorm_embedding": "target_embeddings.norm",
            }
        ),
    },
    BART_DEFAULTS,
    prefix="model.",
)

MARIAN = Family(
    marian_config,
    SHARED,
    MARIAN_DEFAULTS,
    prefix="model.",
    computed=frozenset({"encoder.embed_positions.weight", "decoder.embed_positions.weight"}),
)
