"""BLOOM (BigScience 2022): a decoder whose scores fall with the distance; embeddings have a norm."""

from __future__ import annotations

from typing import Any

from model.checkpoints.decoders import HEADS, UNUSED, by_heads, decoder_head
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import Family, HFConfig, Names, attention_maps, norms_and_biases, require
from model.checkpoints.fields import either, field_names, unsupported
from model.config import (
    AttentionConfig,
    EmbeddingsConfig,
    FeedForwardConfig,
    NormConfig,
    PositionsConfig,
    RelativeConfig,
    TransformerConfig,
)


def bloom_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a BLOOM, some of whose fields have two names."""
    require(config, apply_residual_connection_post_layernorm=False)
    if config["slow_but_exact"] and config["pretraining_tp"] != 1:  # each alone changes nothing
        raise CheckpointError(unsupported("slow_but_exact", True, "only false is where pretraining_tp is not 1"))
    d_model, heads, layers = (either(config, old, name, CLASS_DEFAULTS[name]) for old, name in OLD_NAMES.items())
    return TransformerConfig(
        architecture="decoder",
        vocab_size=config["vocab_size"],
        d_model=d_model,
        attention=AttentionConfig(heads, relative=RelativeConfig("linear")),
        feed_forward=FeedForwardConfig(4 * d_model, "gelu-tanh"),
        num_decoder_layers=layers,
        max_positions=config["seq_length"],
        positions=PositionsConfig("none"),
        norm=NormConfig(epsilon=config["layer_norm_epsilon"]),
        embeddings=EmbeddingsConfig(norm=True),
        head=decoder_head(config),
        dropout=config["hidden_dropout"],
    )


OLD_NAMES = {"n_embed": "hidden_size", "n_head": "num_attention_heads", "n_layer": "num_hidden_layers"}
CLASS_DEFAULTS = {"hidden_size": 64, "num_attention_heads": 8, "num_hidden_layers": 2}
DEFAULTS: dict[str, Any] = {
    **dict.fromkeys([*OLD_NAMES, *OLD_NAMES.values()]),
    "vocab_size": 250880,
    "n_inner": None,
    "seq_length": 2048,  # of its training; further than that nothing was learned
    "layer_norm_epsilon": 1e-5,
    "hidden_dropout": 0.0,
    "apply_residual_connection_post_layernorm": False,
    "tie_word_embeddings": True,
    "is_causal": True,
    "pretraining_tp": 1,
    "slow_but_exact": False,
}
# How it was computed.
HARMLESS = field_names(
    "attention_softmax_in_fp32 bias_dropout_fusion masked_softmax_fusion offset_alibi skip_bias_add skip_bias_add_qkv"
)

LAYER, BLOCK = "h.{}", "decoder.blocks.{}"
NAMES: Names = {
    "word_embeddings.weight": "embeddings.words.weight",
    **by_heads(f"{LAYER}.self_attention.query_key_value", *attention_maps(f"{BLOCK}.self_attention")),
    **norms_and_biases(
        {
            "word_embeddings_layernorm": "embeddings.norm",
            f"{LAYER}.self_attention.dense": f"{BLOCK}.self_attention.output",
            f"{LAYER}.mlp.dense_h_to_4h": f"{BLOCK}.feed_forward.expand",
            f"{LAYER}.mlp.dense_4h_to_h": f"{BLOCK}.feed_forward.contract",
            f"{LAYER}.input_layernorm": f"{BLOCK}.self_attention_residual.norm",
            f"{LAYER}.post_attention_layernorm": f"{BLOCK}.feed_forward_residual.norm",
            "ln_f": "decoder.final_norm",
        }
    ),
}

BLOOM = Family(bloom_config, NAMES, DEFAULTS, HARMLESS, prefixes=("transformer.",), heads=HEADS, unused=UNUSED)
