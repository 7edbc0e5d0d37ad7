"""ModernBERT (Warner et al. 2024): pre-norm, rotary positions of two bases, GeGLU, windows but in every third layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import Family, HFConfig, Names, Parts, activation, norms_and_biases
from model.checkpoints.fields import names, unsupported
from model.checkpoints.heads import head_kind, num_labels
from model.config import (
    AttentionConfig,
    EmbeddingsConfig,
    FeedForwardConfig,
    HeadConfig,
    HeadKind,
    NormConfig,
    Pooling,
    PositionsConfig,
    TransformerConfig,
)

FULL, LOCAL = "full_attention", "sliding_attention"
POOLINGS: dict[str, Pooling] = {"cls": "first", "mean": "mean"}


def modernbert_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a ModernBERT."""
    local, bias, window = _local_layers(config), config["attention_bias"], config["local_attention"]
    return TransformerConfig(
        architecture="encoder",
        vocab_size=config["vocab_size"],
        d_model=config["hidden_size"],
        attention=AttentionConfig(
            config["num_attention_heads"],
            qkv_bias=bias,
            output_bias=bias,
            window=window if local else None,
            local_layers=local,
        ),
        feed_forward=FeedForwardConfig(
            config["intermediate_size"], activation(config["hidden_activation"]), gated=True, bias=config["mlp_bias"]
        ),
        num_encoder_layers=config["num_hidden_layers"],
        max_positions=config["max_position_embeddings"],
        positions=PositionsConfig(
            "rotary",
            base=_base(config, FULL, config["global_rope_theta"]),
            local_base=_base(config, LOCAL, config["local_rope_theta"]) if local else None,
        ),
        norm=NormConfig(epsilon=config["norm_eps"], bias=config["norm_bias"], skips_first=True),
        embeddings=EmbeddingsConfig(norm=True),
        head=_head(config),
        dropout=config["mlp_dropout"],
    )


def _local_layers(config: HFConfig) -> tuple[int, ...]:
    count, types, every = config["num_hidden_layers"], config["layer_types"], config["global_attn_every_n_layers"]
    if types is None:
        return tuple(layer for layer in range(count) if layer % every)
    if len(types) != count or set(types) - {FULL, LOCAL}:
        raise CheckpointError(unsupported("layer_types", types, f"each layer must be one of {FULL}, {LOCAL}"))
    return tuple(layer for layer, kind in enumerate(types) if kind == LOCAL)


def _base(config: HFConfig, layers: str, old: float) -> float:
    """Return the base of the rotation of layers of a type; older files have a field for each."""
    given = {"rope_type": "default", "rope_theta": old, **((config["rope_parameters"] or {}).get(layers) or {})}
    for name, value in given.items():
        if name != "rope_theta" and (name, value) != ("rope_type", "default"):
            why = "only waves of the default type are supported"
            raise CheckpointError(unsupported(f"rope_parameters.{layers}.{name}", value, why))
    base: float = given["rope_theta"]
    return base


def _head(config: HFConfig) -> HeadConfig:
    kind, pooling = head_kind(config, HEADS), config["classifier_pooling"]
    if pooling not in POOLINGS:
        why = f"only {', '.join(POOLINGS)} are supported"
        raise CheckpointError(unsupported("classifier_pooling", pooling, why))
    transform = HeadConfig(
        kind,
        dense=True,
        dense_bias=config["classifier_bias"],
        activation=activation(config["classifier_activation"]),
        norm=True,
    )
    words = replace(transform, bias=config["decoder_bias"], tied=config["tie_word_embeddings"])
    if kind == "embed":
        return HeadConfig("embed")
    if kind == "fill":
        return words
    return replace(
        transform,
        num_labels=num_labels(config),
        pooling=POOLINGS[pooling] if kind == "classify" else "first",
        bias=True,
    )


DEFAULTS = {
    "vocab_size": 50368,
    "hidden_size": 768,
    "intermediate_size": 1152,
    "num_hidden_layers": 22,
    "num_attention_heads": 12,
    "hidden_activation": "gelu",
    "max_position_embeddings": 8192,
    "norm_eps": 1e-5,
    "norm_bias": False,
    "attention_bias": False,
    "mlp_bias": False,
    "mlp_dropout": 0.0,
    "layer_types": None,
    "global_attn_every_n_layers": 3,
    "local_attention": 128,
    "rope_parameters": None,
    "global_rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
    "rope_scaling": None,
    "decoder_bias": True,
    "classifier_pooling": "cls",
    "classifier_bias": False,
    "classifier_activation": "gelu",
    "tie_word_embeddings": True,
}
# How it was computed, which logits are computed in training, and two fields that no code reads.
HARMLESS = (
    names("deterministic_flash_attn reference_compile repad_logits_with_grad sparse_prediction")
    | names("sparse_pred_ignore_index embedding_dropout cls_token_id")
    | names("layer_norm_eps position_embedding_type")
)

LAYER, BLOCK = "layers.{}", "encoder.blocks.{}"


def _joined(theirs: str, *ours: str) -> dict[str, Parts]:
    """Return the names of a linear map that is several of ours, one below the other."""
    return {
        f"{LAYER}.{theirs}.{part}": Parts(
            tuple(f"{BLOCK}.{name}.{part}" for name in ours), lambda tensor: tensor.chunk(len(ours))
        )
        for part in ("weight", "bias")
    }


BODY: Names = {
    "embeddings.tok_embeddings.weight": "embeddings.words.weight",
    **_joined("attn.Wqkv", "self_attention.query", "self_attention.key", "self_attention.value"),
    **_joined("mlp.Wi", "feed_forward.gate", "feed_forward.expand"),
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
    prefix="model.",
    heads=HEADS,
    unused={"embed": frozenset(FILL)},
)
