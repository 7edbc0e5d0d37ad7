"""DeBERTa v2 and v3 (He et al. 2021, 2023): a BERT whose scores know distances by content and position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from model.checkpoints import bert
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import Family, HFConfig, Names, activation, norms_and_biases, require
from model.checkpoints.fields import field_names, unsupported
from model.config import HeadKind, PositionsConfig, RelativeConfig, TransformerConfig


def deberta_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a DeBERTa."""
    for width in ("embedding_size", "pooler_hidden_size"):
        require(config, **{width: config["hidden_size"] if config[width] else None})
    made, pooled = bert.bert_config(config), activation(config["pooler_hidden_act"])
    head = made.head
    return replace(
        made,
        attention=replace(made.attention, relative=_relative(config)),
        positions=PositionsConfig("learned" if config["position_biased_input"] else "none"),
        head=replace(head, activation=pooled) if head.kind == "classify" else head,
    )


def _relative(config: HFConfig) -> RelativeConfig | None:
    """Return the distances that scores know; without any it is a BERT."""
    kinds, farthest, buckets = config["pos_att_type"], config["max_relative_positions"], config["position_buckets"]
    is_relative = config["relative_attention"]
    wanted = {"c2p", "p2c"} if is_relative else set()
    if {*(kinds.split("|") if isinstance(kinds, str) else kinds or [])} != wanted:
        raise CheckpointError(unsupported("pos_att_type", kinds, "only p2c and c2p together are supported"))
    require(config, norm_rel_ebd="layer_norm" if is_relative else "none")
    if not is_relative:
        return None
    require(config, share_att_key=True)
    if buckets < 1:
        raise CheckpointError(unsupported("position_buckets", buckets, "it must be at least 1"))
    return RelativeConfig("disentangled", buckets, farthest if farthest > 0 else config["max_position_embeddings"])


DEFAULTS = {
    **bert.DEFAULTS,
    "vocab_size": 128100,
    "hidden_size": 1536,
    "num_hidden_layers": 24,
    "num_attention_heads": 24,
    "intermediate_size": 6144,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
    "relative_attention": False,
    "max_relative_positions": -1,
    "position_buckets": -1,
    "norm_rel_ebd": "none",
    "share_att_key": False,
    "pos_att_type": None,
    "position_biased_input": True,
    "conv_kernel_size": 0,
    "pooler_hidden_act": "gelu",
    "pooler_hidden_size": None,
    "embedding_size": None,
}
# Dropout, the act of a convolution that is refused, and which of two names the tensors of the head have.
HARMLESS = field_names("pooler_dropout conv_act legacy")

LAYER, BLOCK = bert.LAYER, bert.BLOCK
BODY: Names = {
    **{name: target for name, target in bert.BODY.items() if ".attention.self." not in name},
    "encoder.rel_embeddings.weight": "encoder.relative.table.weight",
    **norms_and_biases(
        {
            "encoder.LayerNorm": "encoder.relative.norm",
            f"{LAYER}.attention.self.query_proj": f"{BLOCK}.self_attention.query",
            f"{LAYER}.attention.self.key_proj": f"{BLOCK}.self_attention.key",
            f"{LAYER}.attention.self.value_proj": f"{BLOCK}.self_attention.value",
        }
    ),
}
NEW_FILL: Names = {
    **norms_and_biases(
        {
            "lm_predictions.lm_head.dense": "head.word_transform.dense",
            "lm_predictions.lm_head.LayerNorm": "head.word_transform.norm",
        }
    ),
    "lm_predictions.lm_head.bias": "head.words.bias",
}
FILL: Names = {**bert.FILL, **NEW_FILL}
# Of pretraining by replaced words: what tells them.
REPLACED = norms_and_biases({f"mask_predictions.{part}": "" for part in ("dense", "LayerNorm", "classifier")})
PRETRAINING = frozenset({**REPLACED, **NEW_FILL})
HEADS: Mapping[HeadKind, Names] = {**bert.HEADS, "fill": FILL}

DEBERTA = Family(
    deberta_config,
    BODY,
    DEFAULTS,
    HARMLESS,
    prefixes=("deberta.",),
    computed=frozenset({"embeddings.position_ids"}),
    heads=HEADS,
    unused={"fill": frozenset(REPLACED), "embed": PRETRAINING | frozenset(FILL)},
    surplus=frozenset({"embeddings.positions.weight"}),
)
