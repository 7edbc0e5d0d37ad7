"""ALBERT (Lan et al. 2020): a BERT whose layers are one, with embeddings narrower than it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from model.checkpoints import bert
from model.checkpoints.family import Family, HFConfig, Names, norms_and_biases, require
from model.config import HeadKind, TransformerConfig


def albert_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of an ALBERT, whose embeddings are mapped even where they are as wide as its layers."""
    require(config, num_hidden_groups=1, inner_group_num=1)
    made = bert.bert_config(config)
    return replace(made, embeddings=replace(made.embeddings, width=config["embedding_size"]), shared_layers=True)


DEFAULTS = {
    **bert.DEFAULTS,
    "vocab_size": 30000,
    "embedding_size": 128,
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "intermediate_size": 16384,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0.0,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
}
# Of its first code, which no other reads.
HARMLESS = frozenset({"down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks"})

LAYER, BLOCK = "encoder.albert_layer_groups.{}.albert_layers.0", "encoder.blocks.{}"
BODY: Names = {
    **{name: target for name, target in bert.BODY.items() if name.startswith("embeddings.")},
    **norms_and_biases(
        {
            "encoder.embedding_hidden_mapping_in": "embeddings.project",
            f"{LAYER}.attention.query": f"{BLOCK}.self_attention.query",
            f"{LAYER}.attention.key": f"{BLOCK}.self_attention.key",
            f"{LAYER}.attention.value": f"{BLOCK}.self_attention.value",
            f"{LAYER}.attention.dense": f"{BLOCK}.self_attention.output",
            f"{LAYER}.attention.LayerNorm": f"{BLOCK}.self_attention_residual.norm",
            f"{LAYER}.ffn": f"{BLOCK}.feed_forward.expand",
            f"{LAYER}.ffn_output": f"{BLOCK}.feed_forward.contract",
            f"{LAYER}.full_layer_layer_norm": f"{BLOCK}.feed_forward_residual.norm",
        }
    ),
}
POOLER = norms_and_biases({"pooler": "head.transform.dense"})
FILL: Names = {name.removeprefix("cls.").replace("transform.", ""): target for name, target in bert.FILL.items()}
FOLLOWS = norms_and_biases({"sop_classifier.classifier": "head.follows"})  # of the pretraining, which nobody asks
HEADS: Mapping[HeadKind, Names] = {**bert.HEADS, "classify": {**POOLER, **bert.CLASSIFIER}, "fill": FILL}

ALBERT = Family(
    albert_config,
    BODY,
    DEFAULTS,
    HARMLESS,
    prefixes=("albert.",),
    computed=frozenset({"embeddings.position_ids"}),
    heads=HEADS,
    unused=bert.others(POOLER, FILL, FOLLOWS),
)
