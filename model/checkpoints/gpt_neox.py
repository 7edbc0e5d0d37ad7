"""GPT-NeoX (Black et al. 2022; Pythia, Biderman et al. 2023): attention and feed-forward beside each other.

A part of each head turns with its position; query, key and value are one matrix, head by head.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from model.checkpoints.decoders import HEADS, UNUSED, by_heads, decoder_head
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import Family, HFConfig, Names, activation, attention_maps, norms_and_biases
from model.checkpoints.fields import unsupported
from model.checkpoints.rope import rotary_positions
from model.config import AttentionConfig, FeedForwardConfig, NormConfig, PositionsConfig, TransformerConfig


def to_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a GPT-NeoX."""
    heads, d_model, bias = config["num_attention_heads"], config["hidden_size"], config["attention_bias"]
    return TransformerConfig(
        architecture="decoder",
        vocab_size=config["vocab_size"],
        d_model=d_model,
        attention=AttentionConfig(heads, qkv_bias=bias, output_bias=bias),
        feed_forward=FeedForwardConfig(
            config["intermediate_size"], activation(config["hidden_act"]), parallel=config["use_parallel_residual"]
        ),
        num_decoder_layers=config["num_hidden_layers"],
        max_positions=config["max_position_embeddings"],
        positions=_positions(config, d_model // heads),
        norm=NormConfig(epsilon=config["layer_norm_eps"]),
        head=decoder_head(config),
        dropout=config["hidden_dropout"],
    )


def _positions(config: HFConfig, head_dim: int) -> PositionsConfig:
    """Return the rotation, of the share of each head that a file has under an older or a newer name."""
    given, stated = dict(config["rope_parameters"] or {}), config["rotary_pct"]
    if given and config["rope_scaling"]:  # of which transformers takes the latter, with another share
        raise CheckpointError(unsupported("rope_scaling", config["rope_scaling"], "rope_parameters are there, too"))
    share = given.pop("partial_rotary_factor", stated)
    if stated is not None and share != stated:
        raise CheckpointError(unsupported("rotary_pct", stated, "rope_parameters say otherwise"))
    waves = {name: config[name] for name in ("rope_scaling", "rope_local_base_freq", "max_position_embeddings")}
    waves |= {"rope_parameters": given, "rope_theta": config["rotary_emb_base"]}
    positions = rotary_positions(waves, has_windows=False, by_type=False)
    turning = int(head_dim * (ROTARY_SHARE if share is None else share))
    if turning % 2:
        why = f"{turning} of the {head_dim} features of each head would turn, which must be an even number"
        raise CheckpointError(unsupported("rotary_pct", share, why))
    return replace(positions, rotary_dim=None if turning == head_dim else turning)


ROTARY_SHARE = 0.25  # where no file says it
DEFAULTS: dict[str, Any] = {
    "vocab_size": 50432,
    "hidden_size": 6144,
    "num_hidden_layers": 44,
    "num_attention_heads": 64,
    "intermediate_size": 24576,
    "hidden_act": "gelu",
    "hidden_dropout": 0.0,
    "max_position_embeddings": 2048,
    "layer_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "use_parallel_residual": True,
    "attention_bias": True,
    "rotary_pct": None,
    "rotary_emb_base": 10000,
    "rope_parameters": None,
    "rope_scaling": None,
    "rope_local_base_freq": None,
    "is_causal": True,
}

LAYER, BLOCK = "layers.{}", "decoder.blocks.{}"

NAMES: Names = {
    "embed_in.weight": "embeddings.words.weight",
    **by_heads(f"{LAYER}.attention.query_key_value", *attention_maps(f"{BLOCK}.self_attention")),
    **norms_and_biases(
        {
            f"{LAYER}.attention.dense": f"{BLOCK}.self_attention.output",
            f"{LAYER}.mlp.dense_h_to_4h": f"{BLOCK}.feed_forward.expand",
            f"{LAYER}.mlp.dense_4h_to_h": f"{BLOCK}.feed_forward.contract",
            f"{LAYER}.input_layernorm": f"{BLOCK}.self_attention_residual.norm",
            f"{LAYER}.post_attention_layernorm": f"{BLOCK}.feed_forward_residual.norm",
            "final_layer_norm": "decoder.final_norm",
        }
    ),
}

GPT_NEOX = Family(
    to_config,
    NAMES,
    DEFAULTS,
    prefixes=("gpt_neox.",),
    # The causal mask and the waves.
    computed=frozenset(f"{LAYER}.attention.{name}" for name in ("bias", "masked_bias", "rotary_emb.inv_freq")),
    heads=HEADS,
    unused=UNUSED,
)
