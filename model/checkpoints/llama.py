"""Llama (Touvron et al. 2023), SmolLM2, Mistral, Qwen2 and 2.5, Qwen3: one architecture with switches.

Pre-norm decoders with rotary positions, RMS norms, gated feed-forward, and heads that share keys
and values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from model.checkpoints.decoders import HEADS, UNUSED, decoder_head
from model.checkpoints.family import Family, HFConfig, Names, activation, norms_and_biases, projections
from model.checkpoints.fields import field_names
from model.checkpoints.rope import layers_with_window, rotary_positions
from model.config import (
    AttentionConfig,
    EmbeddingsConfig,
    FeedForwardConfig,
    HeadConfig,
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


def configure(
    config: HFConfig, heads: AttentionConfig, *, is_gemma: bool = False, encoder_head: HeadConfig | None = None
) -> TransformerConfig:
    """Return our configuration with an attention: a decoder's, unless an encoder's head is given.

    Gemma's embeddings are scaled, and its norms twice as many.
    """
    name, layers = activation(config["hidden_activation" if is_gemma else "hidden_act"]), config["num_hidden_layers"]
    return TransformerConfig(
        architecture="decoder" if encoder_head is None else "encoder",
        vocab_size=config["vocab_size"],
        d_model=config["hidden_size"],
        attention=heads,
        feed_forward=FeedForwardConfig(config["intermediate_size"], name, gated=True, bias=config["mlp_bias"]),
        num_decoder_layers=layers if encoder_head is None else 0,
        num_encoder_layers=0 if encoder_head is None else layers,
        max_positions=config["max_position_embeddings"],
        positions=rotary_positions(config, has_windows=heads.window is not None, by_type=is_gemma),
        norm=NormConfig("rms", "sandwich" if is_gemma else "pre", epsilon=config["rms_norm_eps"], bias=False),
        embeddings=EmbeddingsConfig(scale=is_gemma),
        head=encoder_head or decoder_head(config),
        dropout=0.0,
    )


BLOCK = "decoder.blocks.{}"
MAPS: Names = {
    "embed_tokens.weight": "embeddings.words.weight",
    **norms_and_biases(
        {
            **projections("layers.{}.self_attn", f"{BLOCK}.self_attention"),
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

# What older files leave out.
DEFAULTS: Mapping[str, Any] = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
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
MISTRAL = family(mistral_config, {**DEFAULTS, "sliding_window": 4096})
QWEN2 = family(qwen2_config, QWEN_DEFAULTS, WINDOWLESS)
QWEN3 = family(qwen3_config, {**QWEN_DEFAULTS, "head_dim": 128}, WINDOWLESS)
