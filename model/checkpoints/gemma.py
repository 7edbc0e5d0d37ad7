"""The text of Gemma 3 (Gemma Team 2025): a Llama with more norms, scaled embeddings, and mostly windows.

Norms multiply by 1 + w, which is folded here; scores have a scale of their own; embeddings are multiplied by √d_model.
As an encoder (Schechter Vera et al. 2025, EmbeddingGemma) every token sees those behind it, too, and it makes vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from model.checkpoints.family import HFConfig, Names, Parts, require, with_prefix
from model.checkpoints.fields import field_names
from model.checkpoints.heads import head_kind
from model.checkpoints.llama import BLOCK, DEFAULTS, MAPS, NORMS, attention, configure, family
from model.checkpoints.rope import layers_with_window
from model.config import HeadConfig, HeadKind, TransformerConfig


def gemma3_config(config: HFConfig, encoder_head: HeadConfig | None = None) -> TransformerConfig:
    """Return our configuration of a Gemma 3, where every sixth layer sees everything unless the file says otherwise."""
    require(config, attn_logit_softcapping=None, final_logit_softcapping=None)
    every = config["sliding_window_pattern"]
    local = [layer for layer in range(config["num_hidden_layers"]) if (layer + 1) % every]
    heads = attention(
        config,
        bias=config["attention_bias"],
        qk_norm=True,
        local=layers_with_window(config, local),
        scale=config["query_pre_attn_scalar"] ** -0.5,
    )
    return configure(config, heads, is_gemma=True, encoder_head=encoder_head)


def gemma3_encoder_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a Gemma 3 that is an encoder; a token sees half of the window to either side."""
    require(config, use_bidirectional_attention=True)
    return gemma3_config(config, HeadConfig(head_kind(config, ENCODER_HEADS)))


ALL_NORMS = {
    **NORMS,
    "layers.{}.post_attention_layernorm.weight": f"{BLOCK}.self_attention_residual.output_norm.weight",
    "layers.{}.pre_feedforward_layernorm.weight": f"{BLOCK}.feed_forward_residual.norm.weight",
    "layers.{}.post_feedforward_layernorm.weight": f"{BLOCK}.feed_forward_residual.output_norm.weight",
}
NAMES: Names = {
    **MAPS,
    **{theirs: Parts((ours,), lambda weight: (1 + weight.float(),)) for theirs, ours in ALL_NORMS.items()},
}

GEMMA3_DEFAULTS = {
    **{name: value for name, value in DEFAULTS.items() if name != "hidden_act"},
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "rope_theta": 1_000_000.0,
    "rope_local_base_freq": 10_000.0,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "sliding_window_pattern": 6,
}

HARMLESS = field_names("_sliding_window_pattern sliding_window")
ENCODER_HEADS: Mapping[HeadKind, Names] = {"embed": {}}

GEMMA3 = family(gemma3_config, GEMMA3_DEFAULTS, HARMLESS, NAMES)
GEMMA3_ENCODER = replace(
    GEMMA3,
    configure=gemma3_encoder_config,
    names=with_prefix(NAMES, "decoder.", "encoder."),
    defaults={**GEMMA3_DEFAULTS, "is_causal": False},
    harmless=HARMLESS | field_names("tie_word_embeddings"),
    heads=ENCODER_HEADS,
)
