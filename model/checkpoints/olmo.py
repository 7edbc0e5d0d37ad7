"""OLMo 2 (OLMo Team 2025): a Llama whose norms are behind the sublayers, and over all queries and keys."""

from __future__ import annotations

from dataclasses import replace

from model.checkpoints.family import HFConfig, Names
from model.checkpoints.llama import BLOCK, DEFAULTS, MAPS, NORMS, attention, configure, family
from model.config import TransformerConfig


def olmo2_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of an OLMo 2, whose norms are behind the sublayers, and over all queries and keys."""
    heads = attention(config, bias=config["attention_bias"], qk_norm=True)
    made = configure(config, replace(heads, qk_norm_of="heads"))
    return replace(made, norm=replace(made.norm, placement="output"))


OUTPUT_NORMS: Names = {
    **{name: target for name, target in {**MAPS, **NORMS}.items() if "input_layernorm" not in name},
    "layers.{}.post_attention_layernorm.weight": f"{BLOCK}.self_attention_residual.output_norm.weight",
    "layers.{}.post_feedforward_layernorm.weight": f"{BLOCK}.feed_forward_residual.output_norm.weight",
}

OLMO2 = family(olmo2_config, {**DEFAULTS, "num_key_value_heads": None, "rms_norm_eps": 1e-5}, table=OUTPUT_NORMS)
