"""DistilBERT (Sanh et al. 2019): a BERT without segments, whose modules have names of their own."""

from __future__ import annotations

from collections.abc import Mapping

from model.checkpoints.family import Family, HFConfig, Names, activation, norms_and_biases
from model.checkpoints.fields import field_names
from model.checkpoints.heads import head_kind, num_labels
from model.config import (
    AttentionConfig,
    EmbeddingsConfig,
    FeedForwardConfig,
    HeadConfig,
    HeadKind,
    NormConfig,
    TransformerConfig,
)


def distilbert_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a DistilBERT."""
    return TransformerConfig(
        architecture="encoder",
        vocab_size=config["vocab_size"],
        d_model=config["dim"],
        attention=AttentionConfig(config["n_heads"]),
        feed_forward=FeedForwardConfig(config["hidden_dim"], activation(config["activation"])),
        num_encoder_layers=config["n_layers"],
        max_positions=config["max_position_embeddings"],
        norm=NormConfig(placement="post", epsilon=1e-12),
        embeddings=EmbeddingsConfig(norm=True),
        head=_head(config),
        dropout=config["dropout"],
    )


def _head(config: HFConfig) -> HeadConfig:
    kind, tied = head_kind(config, HEADS), config["tie_word_embeddings"]
    if kind == "embed":
        return HeadConfig("embed")
    if kind == "fill":
        transform = activation(config["activation"])
        return HeadConfig("fill", dense=True, activation=transform, norm=True, bias=True, tied=tied)
    return HeadConfig(kind, num_labels(config), dense=kind == "classify", activation="relu", bias=True)


DEFAULTS = {
    "vocab_size": 30522,
    "dim": 768,
    "n_layers": 6,
    "n_heads": 12,
    "hidden_dim": 3072,
    "activation": "gelu",
    "dropout": 0.1,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
# What the positions began as, before they were learned; dropout of the heads.
HARMLESS = field_names("sinusoidal_pos_embds qa_dropout seq_classif_dropout tie_weights_")

LAYER, BLOCK = "transformer.layer.{}", "encoder.blocks.{}"
BODY: Names = {
    "embeddings.word_embeddings.weight": "embeddings.words.weight",
    "embeddings.position_embeddings.weight": "embeddings.positions.weight",
    **norms_and_biases(
        {
            "embeddings.LayerNorm": "embeddings.norm",
            f"{LAYER}.attention.q_lin": f"{BLOCK}.self_attention.query",
            f"{LAYER}.attention.k_lin": f"{BLOCK}.self_attention.key",
            f"{LAYER}.attention.v_lin": f"{BLOCK}.self_attention.value",
            f"{LAYER}.attention.out_lin": f"{BLOCK}.self_attention.output",
            f"{LAYER}.sa_layer_norm": f"{BLOCK}.self_attention_residual.norm",
            f"{LAYER}.ffn.lin1": f"{BLOCK}.feed_forward.expand",
            f"{LAYER}.ffn.lin2": f"{BLOCK}.feed_forward.contract",
            f"{LAYER}.output_layer_norm": f"{BLOCK}.feed_forward_residual.norm",
        }
    ),
}
CLASSIFIER = norms_and_biases({"classifier": "head.output"})
FILL: Names = {
    **norms_and_biases(
        {
            "vocab_transform": "head.word_transform.dense",
            "vocab_layer_norm": "head.word_transform.norm",
            "vocab_projector": "head.words.output",
        }
    ),
    "vocab_projector.bias": "head.words.bias",
}
HEADS: Mapping[HeadKind, Names] = {
    "classify": {**norms_and_biases({"pre_classifier": "head.transform.dense"}), **CLASSIFIER},
    "tag": CLASSIFIER,
    "answer": norms_and_biases({"qa_outputs": "head.output"}),
    "fill": FILL,
    "embed": {},
}

DISTILBERT = Family(
    distilbert_config,
    BODY,
    DEFAULTS,
    HARMLESS,
    prefixes=("distilbert.",),
    heads=HEADS,
    unused={"embed": frozenset(FILL)},
)
