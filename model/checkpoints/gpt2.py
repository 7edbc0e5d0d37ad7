"""GPT-2 (Radford et al. 2019): a pre-norm decoder whose matrices are stored transposed, query, key and value in one."""

from __future__ import annotations

from typing import Any

from model.checkpoints.decoders import HEADS, UNUSED, decoder_head
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import (
    Family,
    HFConfig,
    Names,
    Parts,
    activation,
    attention_maps,
    norms_and_biases,
    require,
)
from model.checkpoints.fields import either, field_names
from model.checkpoints.files import CONFIG_FILE
from model.config import AttentionConfig, FeedForwardConfig, NormConfig, TransformerConfig


def to_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a GPT-2."""
    require(config, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    d_model, heads, layers, positions = (_size(config, name) for name in OTHER_NAMES)
    return TransformerConfig(
        architecture="decoder",
        vocab_size=config["vocab_size"],
        d_model=d_model,
        attention=AttentionConfig(heads, scale=None if config["scale_attn_weights"] else 1.0),
        feed_forward=FeedForwardConfig(config["n_inner"] or 4 * d_model, activation(config["activation_function"])),
        num_decoder_layers=layers,
        max_positions=positions,
        norm=NormConfig(epsilon=config["layer_norm_epsilon"]),
        head=decoder_head(config),
        dropout=config["resid_pdrop"],
    )


def _size(config: HFConfig, name: str) -> int:
    size: int | None = either(config, name, OTHER_NAMES[name])
    if size is None:
        raise CheckpointError(f"{CONFIG_FILE}: there is neither {name} nor {OTHER_NAMES[name]}")
    return size


# What transformers also calls the sizes.
OTHER_NAMES = {
    "n_embd": "hidden_size",
    "n_head": "num_attention_heads",
    "n_layer": "num_hidden_layers",
    "n_positions": "max_position_embeddings",
}
DEFAULTS: dict[str, Any] = {
    **dict.fromkeys([*OTHER_NAMES, *OTHER_NAMES.values()]),
    "n_inner": None,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "resid_pdrop": 0.1,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
    "tie_word_embeddings": True,
    "is_causal": True,
}
# A head for multiple choice, the precision of scores, another name of n_positions, and what OpenAI's code had.
HARMLESS = field_names("summary_type summary_use_proj summary_activation summary_proj_to_labels") | field_names(
    "reorder_and_upcast_attn n_ctx n_special predict_special_tokens"
)

QKV = attention_maps("decoder.blocks.{}.self_attention")
OUTPUT = "decoder.blocks.{}.self_attention.output"
EXPAND, CONTRACT = "decoder.blocks.{}.feed_forward.expand", "decoder.blocks.{}.feed_forward.contract"

NAMES: Names = {
    "wte.weight": "embeddings.words.weight",
    "wpe.weight": "embeddings.positions.weight",
    "h.{}.attn.c_attn.weight": Parts(tuple(f"{part}.weight" for part in QKV), lambda w: w.T.chunk(3)),
    "h.{}.attn.c_attn.bias": Parts(tuple(f"{part}.bias" for part in QKV), lambda b: b.chunk(3)),
    **{
        f"{theirs}.weight": Parts((f"{ours}.weight",), lambda w: (w.T,))
        for theirs, ours in {
            "h.{}.attn.c_proj": OUTPUT,
            "h.{}.mlp.c_fc": EXPAND,
            "h.{}.mlp.c_proj": CONTRACT,
        }.items()
    },
    "h.{}.attn.c_proj.bias": f"{OUTPUT}.bias",
    "h.{}.mlp.c_fc.bias": f"{EXPAND}.bias",
    "h.{}.mlp.c_proj.bias": f"{CONTRACT}.bias",
    **norms_and_biases(
        {
            "h.{}.ln_1": "decoder.blocks.{}.self_attention_residual.norm",
            "h.{}.ln_2": "decoder.blocks.{}.feed_forward_residual.norm",
            "ln_f": "decoder.final_norm",
        }
    ),
}

GPT2 = Family(
    to_config,
    NAMES,
    DEFAULTS,
    HARMLESS,
    prefixes=("transformer.",),
    computed=frozenset({"h.{}.attn.bias", "h.{}.attn.masked_bias"}),  # the causal mask
    heads=HEADS,
    unused=UNUSED,
)
