"""ModernBERT (Warner et al. 2024): pre-norm, rotary positions of two bases, GeGLU, windows but in every third layer.

Its decoders (Weller et al. 2025, Ettin) are the same, but for what a token sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import (
    Family,
    HFConfig,
    Names,
    activation,
    attention_maps,
    joined,
    norms_and_biases,
    require,
    with_prefix,
)
from model.checkpoints.fields import field_names, unsupported
from model.checkpoints.heads import OF_DECODERS, head_kind, num_labels
from model.checkpoints.rope import layers_with_window, rotary_positions
from model.config import (
    AttentionConfig,
    EmbeddingsConfig,
    FeedForwardConfig,
    HeadConfig,
    HeadKind,
    NormConfig,
    Pooling,
    TransformerConfig,
)

POOLINGS: dict[str, Pooling] = {"cls": "first", "mean": "mean"}


def modernbert_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a ModernBERT."""
    return _configure(config, _head(config), config["local_attention"])


def modernbert_decoder_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a decoder, where a token sees half of the window, and only what is before it."""
    window = config["local_attention"] // 2 if config["local_attention"] else None
    window = config["sliding_window"] or window  # which files of transformers have beside it
    return _configure(config, _decoder_head(config), window, is_decoder=True)


def _configure(
    config: HFConfig, head: HeadConfig, window: int | None, *, is_decoder: bool = False
) -> TransformerConfig:
    require(config, rope_scaling=None)
    layers, every, bias = config["num_hidden_layers"], config["global_attn_every_n_layers"], config["attention_bias"]
    local = layers_with_window(config, [layer for layer in range(layers) if layer % every])
    if window is None:
        local = ()
    attention = AttentionConfig(config["num_attention_heads"], qkv_bias=bias, output_bias=bias)
    waves = {name: config[name] for name in ("rope_parameters", "rope_scaling", "max_position_embeddings")}
    waves |= {"rope_theta": config["global_rope_theta"], "rope_local_base_freq": config["local_rope_theta"]}
    name = activation(config["hidden_activation"])
    return TransformerConfig(
        architecture="decoder" if is_decoder else "encoder",
        vocab_size=config["vocab_size"],
        d_model=config["hidden_size"],
        attention=replace(attention, window=window, local_layers=local) if local else attention,
        feed_forward=FeedForwardConfig(config["intermediate_size"], name, gated=True, bias=config["mlp_bias"]),
        num_encoder_layers=0 if is_decoder else layers,
        num_decoder_layers=layers if is_decoder else 0,
        max_positions=config["max_position_embeddings"],
        positions=rotary_positions(waves, has_windows=bool(local), by_type=True),
        norm=NormConfig(epsilon=config["norm_eps"], bias=config["norm_bias"], skips_first=True),
        embeddings=EmbeddingsConfig(norm=True),
        head=head,
        dropout=config["mlp_dropout"],
    )


def _head(config: HFConfig) -> HeadConfig:
    """Return the head that a checkpoint has; all transform hidden states alike."""
    kind, pooling = head_kind(config, HEADS), config["classifier_pooling"]
    if pooling not in POOLINGS:
        raise CheckpointError(unsupported("classifier_pooling", pooling, f"only {', '.join(POOLINGS)} are supported"))
    words = _words(config, kind)  # of which other heads leave fields in the file, too
    if kind in {"embed", "fill"}:
        return HeadConfig("embed") if kind == "embed" else words
    labels = replace(_transform(config, kind), num_labels=num_labels(config), bias=True)
    return replace(labels, pooling=POOLINGS[pooling]) if kind == "classify" else labels


def _decoder_head(config: HFConfig) -> HeadConfig:
    kind = head_kind(config, DECODER_HEADS, OF_DECODERS)
    words = _words(config, kind)
    if kind in {"embed", "words"}:
        return HeadConfig("embed", pooling="last") if kind == "embed" else words
    labels = replace(_transform(config, kind), num_labels=num_labels(config), pooling="last")
    return replace(labels, bias=config["classifier_bias"])


def _transform(config: HFConfig, kind: HeadKind) -> HeadConfig:
    name, bias = activation(config["classifier_activation"]), config["classifier_bias"]
    return HeadConfig(kind, dense=True, dense_bias=bias, activation=name, norm=True)


def _words(config: HFConfig, kind: HeadKind) -> HeadConfig:
    return replace(_transform(config, kind), bias=config["decoder_bias"], tied=config["tie_word_embeddings"])


# What older and newer files leave out.
DEFAULTS = {
    "layer_types": None,
    "global_attn_every_n_layers": 3,
    "rope_parameters": None,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    "rope_scaling": None,
    "tie_word_embeddings": True,
    "hidden_activation": "gelu",
    "classifier_activation": "gelu",
    "classifier_pooling": "cls",
    "local_attention": 128,
    "norm_eps": 1e-5,
    "mlp_dropout": 0.0,
    "decoder_bias": True,
    **dict.fromkeys(("attention_bias", "classifier_bias", "mlp_bias", "norm_bias"), False),
}
# How it was computed, which logits are computed in training, and two fields that no code reads.
HARMLESS = field_names(
    "deterministic_flash_attn reference_compile repad_logits_with_grad sparse_prediction sparse_pred_ignore_index"
    " embedding_dropout layer_norm_eps position_embedding_type"
)

LAYER, BLOCK = "layers.{}", "encoder.blocks.{}"
ATTENTION, FEED_FORWARD = f"{BLOCK}.self_attention", f"{BLOCK}.feed_forward"
BODY: Names = {
    "embeddings.tok_embeddings.weight": "embeddings.words.weight",
    **joined(f"{LAYER}.attn.Wqkv", *attention_maps(ATTENTION)),
    **joined(f"{LAYER}.mlp.Wi", *(f"{FEED_FORWARD}.{name}" for name in ("gate", "expand"))),
    **norms_and_biases(
        {
            "embeddings.norm": "embeddings.norm",
            f"{LAYER}.attn.Wo": f"{BLOCK}.self_attention.output",
            f"{LAYER}.attn_norm": f"{BLOCK}.self_attention_residual.norm",
            f"{LAYER}.mlp.Wo": f"{BLOCK}.feed_forward.contract",
            f"{LAYER}.mlp_norm": f"{BLOCK}.feed_forward_residual.norm",
            "final_norm": "encoder.final_norm",
        }
    ),
}
LABELS = norms_and_biases(
    {"head.dense": "head.transform.dense", "head.norm": "head.transform.norm", "classifier": "head.output"}
)
FILL: Names = {
    **norms_and_biases({"head.dense": "head.word_transform.dense", "head.norm": "head.word_transform.norm"}),
    "decoder.weight": "head.words.output.weight",
    "decoder.bias": "head.words.bias",
}
HEADS: Mapping[HeadKind, Names] = {"classify": LABELS, "tag": LABELS, "answer": LABELS, "fill": FILL, "embed": {}}

MODERNBERT = Family(
    modernbert_config,
    BODY,
    DEFAULTS,
    HARMLESS,
    prefixes=("model.",),
    heads=HEADS,
    unused={"embed": frozenset(FILL)},
)

DECODER_BODY: Names = {
    **{name: target for name, target in with_prefix(BODY, "encoder.", "decoder.").items() if "Wqkv" not in name},
    **norms_and_biases(
        {
            f"{LAYER}.attn.q_proj": "decoder.blocks.{}.self_attention.query",
            f"{LAYER}.attn.k_proj": "decoder.blocks.{}.self_attention.key",
            f"{LAYER}.attn.v_proj": "decoder.blocks.{}.self_attention.value",
        }
    ),
}
WORDS: Names = {
    **norms_and_biases({"lm_head.dense": "word_transform.dense", "lm_head.norm": "word_transform.norm"}),
    "decoder.weight": "head.output.weight",
    "decoder.bias": "head.bias",
}
DECODER_HEADS: Mapping[HeadKind, Names] = {"words": WORDS, "classify": LABELS, "embed": {}}

MODERNBERT_DECODER = Family(
    modernbert_decoder_config,
    DECODER_BODY,
    DEFAULTS | {"is_causal": True, "is_decoder": True, "sliding_window": None},
    HARMLESS | field_names("classifier_pooling"),
    prefixes=("model.",),
    heads=DECODER_HEADS,
    unused={"classify": frozenset(WORDS), "embed": frozenset(WORDS)},
)
