"""Llama (Touvron et al. 2023), SmolLM2, Mistral, Qwen2 and 2.5, Qwen3, SmolLM3, ERNIE 4.5, OLMo 2, EXAONE 4.

One architecture with switches: decoders with rotary positions, RMS norms, gated feed-forward, and heads that share keys
and values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from model.checkpoints.decoders import HEADS, UNUSED, decoder_head
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import Family, HFConfig, Names, Parts, activation, norms_and_biases, require
from model.checkpoints.fields import field_names, unsupported
from model.checkpoints.rope import layers_with_window, rotary_positions
from model.config import (
    AttentionConfig,
    EmbeddingsConfig,
    FeedForwardConfig,
    NormConfig,
    TransformerConfig,
)


def llama_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a Llama."""
    return configure(config, attention(config, bias=config["attention_bias"]))


def mistral_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a Mistral; if there is a window all layers have it."""
    return configure(config, attention(config, local=range(config["num_hidden_layers"])))


def qwen2_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a Qwen2 or 2.5, which has biases on queries, keys and values alone."""
    return configure(config, attention(config, bias=True, output_bias=False, local=_qwen_windows(config)))


def qwen3_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a Qwen3, which has norms on queries and keys."""
    local = _qwen_windows(config)
    return configure(config, attention(config, bias=config["attention_bias"], qk_norm=True, local=local))


def ernie_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of an ERNIE 4.5, where neighbouring features turn together: see `TURNING_PAIRS`."""
    made, bias = configure(config, attention(config, bias=config["use_bias"])), config["use_bias"]
    return replace(made, feed_forward=replace(made.feed_forward, bias=bias))


def olmo2_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of an OLMo 2, whose norms are behind the sublayers, and over all queries and keys."""
    heads = attention(config, bias=config["attention_bias"], qk_norm=True)
    made = configure(config, replace(heads, qk_norm_of="heads"))
    return replace(made, norm=replace(made.norm, placement="output"))


def smollm3_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a SmolLM3: in every fourth layer nothing turns, unless the file says otherwise."""
    require(config, use_sliding_window=False)
    made = configure(config, attention(config, bias=config["attention_bias"]))
    count, every, turning = config["num_hidden_layers"], config["no_rope_layer_interval"], config["no_rope_layers"]
    if turning is None and every < 1:
        raise CheckpointError(unsupported("no_rope_layer_interval", every, "it must be at least 1"))
    if turning is None:
        turning = [(layer + 1) % every for layer in range(count)]
    if len(turning) != count:
        raise CheckpointError(unsupported("no_rope_layers", turning, f"it must have a number for each layer ({count})"))
    unturned = tuple(layer for layer, turns in enumerate(turning) if not turns)
    return replace(made, positions=replace(made.positions, unturned_layers=unturned))


def exaone4_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of an EXAONE 4: norms behind sublayers; where layers have windows others do not turn."""
    has_windows, layers = config["sliding_window"] is not None, range(config["num_hidden_layers"])
    pattern = config["sliding_window_pattern"]  # which says nothing where there are no windows
    local = _exaone_windows(config, layers, pattern) if has_windows else ()
    made = configure(config, attention(config, qk_norm=True, local=local))
    unturned = tuple(layer for layer in layers if has_windows and layer not in local)
    positions = replace(made.positions, unturned_layers=unturned)
    return replace(made, norm=replace(made.norm, placement="output"), positions=positions)


def _exaone_windows(config: HFConfig, layers: Sequence[int], every: object) -> Sequence[int]:
    if config["layer_types"] is not None:
        return layers_with_window(config, ())
    if not isinstance(every, int) or every < 1:
        raise CheckpointError(unsupported("sliding_window_pattern", every, "it must be at least 1 without layer_types"))
    return [layer for layer in layers if (layer + 1) % every]


def _qwen_windows(config: HFConfig) -> Sequence[int]:
    if not config["use_sliding_window"]:
        return ()
    return layers_with_window(config, range(config["max_window_layers"], config["num_hidden_layers"]))


def attention(
    config: HFConfig,
    *,
    bias: bool = False,
    output_bias: bool | None = None,
    qk_norm: bool = False,
    local: Sequence[int] = (),
    scale: float | None = None,
) -> AttentionConfig:
    """Return the attention; the bias of the output is there with the others unless given."""
    window = config["sliding_window"] if local else None
    return AttentionConfig(
        config["num_attention_heads"],
        num_kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        qkv_bias=bias,
        output_bias=bias if output_bias is None else output_bias,
        qk_norm=qk_norm,
        scale=scale,
        window=window,
        local_layers=() if window is None else tuple(local),
    )


def configure(config: HFConfig, heads: AttentionConfig, *, is_gemma: bool = False) -> TransformerConfig:
    """Return our configuration with an attention; Gemma's embeddings are scaled, and its norms twice as many."""
    name = activation(config["hidden_activation" if is_gemma else "hidden_act"])
    return TransformerConfig(
        architecture="decoder",
        vocab_size=config["vocab_size"],
        d_model=config["hidden_size"],
        attention=heads,
        feed_forward=FeedForwardConfig(config["intermediate_size"], name, gated=True, bias=config["mlp_bias"]),
        num_decoder_layers=config["num_hidden_layers"],
        max_positions=config["max_position_embeddings"],
        positions=rotary_positions(config, has_windows=heads.window is not None, by_type=is_gemma),
        norm=NormConfig("rms", "sandwich" if is_gemma else "pre", epsilon=config["rms_norm_eps"], bias=False),
        embeddings=EmbeddingsConfig(scale=is_gemma),
        head=decoder_head(config),
        dropout=0.0,
    )


BLOCK = "decoder.blocks.{}"
MAPS: Names = {
    "embed_tokens.weight": "embeddings.words.weight",
    **norms_and_biases(
        {
            "layers.{}.self_attn.q_proj": f"{BLOCK}.self_attention.query",
            "layers.{}.self_attn.k_proj": f"{BLOCK}.self_attention.key",
            "layers.{}.self_attn.v_proj": f"{BLOCK}.self_attention.value",
            "layers.{}.self_attn.o_proj": f"{BLOCK}.self_attention.output",
            "layers.{}.mlp.gate_proj": f"{BLOCK}.feed_forward.gate",
            "layers.{}.mlp.up_proj": f"{BLOCK}.feed_forward.expand",
            "layers.{}.mlp.down_proj": f"{BLOCK}.feed_forward.contract",
        }
    ),
}
NORMS = {
    "layers.{}.self_attn.q_norm.weight": f"{BLOCK}.self_attention.query_norm.weight",
    "layers.{}.self_attn.k_norm.weight": f"{BLOCK}.self_attention.key_norm.weight",
    "layers.{}.input_layernorm.weight": f"{BLOCK}.self_attention_residual.norm.weight",
    "norm.weight": "decoder.final_norm.weight",
}
NAMES: Names = {
    **MAPS,
    **NORMS,
    "layers.{}.post_attention_layernorm.weight": f"{BLOCK}.feed_forward_residual.norm.weight",
}

OUTPUT_NORMS: Names = {
    **{name: target for name, target in {**MAPS, **NORMS}.items() if "input_layernorm" not in name},
    "layers.{}.post_attention_layernorm.weight": f"{BLOCK}.self_attention_residual.output_norm.weight",
    "layers.{}.post_feedforward_layernorm.weight": f"{BLOCK}.feed_forward_residual.output_norm.weight",
}


def _in_halves(heads: Tensor) -> tuple[Tensor, ...]:
    """Put the first of each pair of neighbouring rows into the first half of a head, (heads, head_dim, …)."""
    return (torch.cat((heads[:, ::2], heads[:, 1::2]), dim=1).flatten(0, 1),)


# The features of queries and keys that turn together are neighbours; ours are as far apart as half a head.
TURNING_PAIRS: Names = {
    f"layers.{{}}.self_attn.{theirs}_proj.{part}": Parts((f"{BLOCK}.self_attention.{ours}.{part}",), _in_halves, "head")
    for theirs, ours in (("q", "query"), ("k", "key"))
    for part in ("weight", "bias")
}

# What older files leave out.
DEFAULTS: Mapping[str, Any] = {
    "is_causal": True,
    "head_dim": None,
    "attention_bias": False,
    "mlp_bias": False,
    "layer_types": None,
} | {
    "rope_parameters": None,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "rope_local_base_freq": None,
}
QWEN_DEFAULTS = {**DEFAULTS, "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
WINDOWLESS = field_names("sliding_window max_window_layers layer_types")  # where there are no windows
COMPUTED = frozenset({"layers.{}.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"})


def family(
    configure_it: Callable[[HFConfig], TransformerConfig],
    defaults: Mapping[str, Any],
    harmless: frozenset[str] = frozenset(),
    table: Names = NAMES,
) -> Family:
    """Return a family of the kind of Llama."""
    return Family(
        configure_it, table, defaults, harmless, prefixes=("model.",), computed=COMPUTED, heads=HEADS, unused=UNUSED
    )


LLAMA = family(llama_config, {**DEFAULTS, "num_key_value_heads": None}, field_names("is_llama_config"))
ERNIE_DEFAULTS = {**DEFAULTS, "head_dim": 128, "use_bias": False, "tie_word_embeddings": True, "rope_theta": 500_000.0}
ERNIE_DEFAULTS |= {"num_key_value_heads": 2}
ERNIE45 = family(ernie_config, ERNIE_DEFAULTS, field_names("auto_map"), {**NAMES, **TURNING_PAIRS})
OLMO2 = family(olmo2_config, {**DEFAULTS, "num_key_value_heads": None}, table=OUTPUT_NORMS)
EXAONE_DEFAULTS = {**DEFAULTS, "sliding_window": 4096, "sliding_window_pattern": 4}
EXAONE4 = family(exaone4_config, EXAONE_DEFAULTS, WINDOWLESS, OUTPUT_NORMS)
SMOLLM_DEFAULTS = {**DEFAULTS, "use_sliding_window": False, "no_rope_layers": None, "no_rope_layer_interval": 4}
SMOLLM_DEFAULTS |= {"num_key_value_heads": 4, "rope_theta": 2_000_000.0, "tie_word_embeddings": True}
SMOLLM3 = family(smollm3_config, SMOLLM_DEFAULTS, WINDOWLESS)
MISTRAL = family(mistral_config, {**DEFAULTS, "sliding_window": 4096})
QWEN2 = family(qwen2_config, QWEN_DEFAULTS, WINDOWLESS)
QWEN3 = family(qwen3_config, {**QWEN_DEFAULTS, "head_dim": 128}, WINDOWLESS)
