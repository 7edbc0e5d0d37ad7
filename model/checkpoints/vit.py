"""ViT (Dosovitskiy et al. 2021) and DeiT (Touvron et al. 2021), which has a second token that learns from a teacher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import Family, HFConfig, Names, Parts, activation, norms_and_biases
from model.checkpoints.fields import field_names, unsupported
from model.checkpoints.heads import OF_IMAGES, head_kind, num_labels
from model.config import (
    AttentionConfig,
    Distillation,
    FeedForwardConfig,
    HeadConfig,
    HeadKind,
    NormConfig,
    TransformerConfig,
    VisionConfig,
)

TEACHER = "ForImageClassificationWithTeacher"


def vit_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a ViT."""
    return _configure(config, "none")


def deit_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a DeiT; the mean of two heads is what the published ones answer."""
    has_teacher = any(str(name).endswith(TEACHER) for name in config.get("architectures") or ())
    return _configure(config, "head" if has_teacher else "token")


def _configure(config: HFConfig, distillation: Distillation) -> TransformerConfig:
    head_kind(config, {"classify"}, OF_IMAGES)
    vision = VisionConfig(
        _side(config, "image_size"), _side(config, "patch_size"), config["num_channels"], distillation=distillation
    )
    return TransformerConfig(
        architecture="vision",
        vocab_size=0,
        d_model=config["hidden_size"],
        attention=AttentionConfig(config["num_attention_heads"], qkv_bias=config["qkv_bias"]),
        feed_forward=FeedForwardConfig(config["intermediate_size"], activation(config["hidden_act"])),
        num_encoder_layers=config["num_hidden_layers"],
        max_positions=vision.num_tokens,
        norm=NormConfig(epsilon=config["layer_norm_eps"]),
        head=HeadConfig("classify", num_labels(config), bias=True),
        vision=vision,
        dropout=config["hidden_dropout_prob"],
    )


def _side(config: HFConfig, name: str) -> int:
    sides: Any = config[name]
    if isinstance(sides, list):
        if len(set(sides)) != 1:
            raise CheckpointError(unsupported(name, sides, "only squares are supported"))
        return int(sides[0])
    return int(sides)


def _flat(token: Tensor) -> tuple[Tensor]:
    return (token[0],)


LAYER, BLOCK = "encoder.layer.{}", "encoder.blocks.{}"
BODY: Names = {
    "embeddings.cls_token": "cls",
    "embeddings.distillation_token": "distillation",
    "embeddings.position_embeddings": Parts(("positions.weight",), _flat),
    **norms_and_biases(
        {
            "embeddings.patch_embeddings.projection": "patches",
            f"{LAYER}.attention.attention.query": f"{BLOCK}.self_attention.query",
            f"{LAYER}.attention.attention.key": f"{BLOCK}.self_attention.key",
            f"{LAYER}.attention.attention.value": f"{BLOCK}.self_attention.value",
            f"{LAYER}.attention.output.dense": f"{BLOCK}.self_attention.output",
            f"{LAYER}.intermediate.dense": f"{BLOCK}.feed_forward.expand",
            f"{LAYER}.output.dense": f"{BLOCK}.feed_forward.contract",
            f"{LAYER}.layernorm_before": f"{BLOCK}.self_attention_residual.norm",
            f"{LAYER}.layernorm_after": f"{BLOCK}.feed_forward_residual.norm",
            "layernorm": "encoder.final_norm",
            "classifier": "classifier",
            "cls_classifier": "classifier",
            "distillation_classifier": "distillation_classifier",
        }
    ),
}

DEFAULTS = {"hidden_act": "gelu", "hidden_dropout_prob": 0.0, "layer_norm_eps": 1e-12, "num_channels": 3} | {
    "qkv_bias": True
}
HARMLESS = field_names("encoder_stride pooler_act pooler_output_size")  # of other heads

# What makes vectors of pictures, and may have been left in the file.
UNUSED: Mapping[HeadKind, frozenset[str]] = {"classify": frozenset(norms_and_biases({"pooler.dense": ""}))}

# Names of modules since version 5 of transformers, which files do not have.
ALIASES = {
    **{rf"^(layers\.\d+\.attention)\.{name[0]}_proj\b": rf"\1.attention.{name}" for name in ("query", "key", "value")},
    r"^(layers\.\d+\.attention)\.o_proj\b": r"\1.output.dense",
    r"^(layers\.\d+)\.mlp\.fc1\b": r"\1.intermediate.dense",
    r"^(layers\.\d+)\.mlp\.fc2\b": r"\1.output.dense",
    r"^layers\.": "encoder.layer.",
}

VIT = Family(vit_config, BODY, DEFAULTS, HARMLESS, ALIASES, prefixes=("vit.",), unused=UNUSED)
DEIT = Family(deit_config, BODY, DEFAULTS, HARMLESS, ALIASES, prefixes=("deit.",), unused=UNUSED)
