"""Granite 3 and 4 (IBM Granite Team 2024): a Llama that multiplies embeddings, scores, residuals and logits.

Of version 4 (`granitemoehybrid`) those without state-space layers and without experts.
"""

from __future__ import annotations

from dataclasses import replace

from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import HFConfig, Names, joined, require
from model.checkpoints.fields import either, field_names, unsupported
from model.checkpoints.llama import BLOCK, DEFAULTS, NAMES, attention, configure, family
from model.config import EmbeddingsConfig, TransformerConfig


def granite_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a Granite."""
    made = configure(config, attention(config, bias=config["attention_bias"], scale=config["attention_multiplier"]))
    words, logits = config["embedding_multiplier"], config["logits_scaling"]
    head = replace(made.head, scale=1 / logits) if made.head.kind == "words" and logits != 1 else made.head
    return replace(
        made,
        embeddings=EmbeddingsConfig(scale=words != 1 and float(words)),
        residual_scale=config["residual_multiplier"],
        head=head,
    )


def hybrid_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a Granite 4 all of whose layers attend."""
    require(config, position_embedding_type="rope", num_local_experts=0)
    types = either(config, "layers_block_type", "layer_types")
    if types is None or set(types) - {"attention", "full_attention"}:
        raise CheckpointError(unsupported("layer_types", types, "state-space layers are not supported, only attention"))
    if len(types) != config["num_hidden_layers"]:
        count = config["num_hidden_layers"]
        raise CheckpointError(unsupported("layer_types", types, f"it must have a type for each layer ({count})"))
    made = granite_config(config)
    return replace(made, feed_forward=replace(made.feed_forward, d_ff=config["shared_intermediate_size"]))


GRANITE_DEFAULTS = {
    **DEFAULTS,
    "num_key_value_heads": None,
    "embedding_multiplier": 1.0,
    "attention_multiplier": 1.0,
    "residual_multiplier": 1.0,
    "logits_scaling": 1.0,
}
HYBRID_DEFAULTS = {**GRANITE_DEFAULTS, "num_local_experts": 8, "position_embedding_type": None}
HYBRID_DEFAULTS |= {"layers_block_type": None}
# Of experts and of state-space layers, where there are none, and how it was trained.
HARMLESS = field_names(
    "intermediate_size num_experts_per_tok output_router_logits router_aux_loss_coef time_step_limit init_method"
    " mamba_n_heads mamba_n_groups mamba_d_state mamba_d_head mamba_d_conv mamba_expand mamba_chunk_size"
    " mamba_conv_bias mamba_proj_bias normalization_function"
)

FEED_FORWARD = f"{BLOCK}.feed_forward"
HYBRID_NAMES: Names = {
    **{name: target for name, target in NAMES.items() if ".mlp." not in name},
    **joined("layers.{}.shared_mlp.input_linear", f"{FEED_FORWARD}.gate", f"{FEED_FORWARD}.expand"),
    "layers.{}.shared_mlp.output_linear.weight": f"{FEED_FORWARD}.contract.weight",
}

GRANITE = family(granite_config, GRANITE_DEFAULTS)
GRANITE_HYBRID = family(hybrid_config, HYBRID_DEFAULTS, HARMLESS, HYBRID_NAMES)
