"""MPNet (Song et al. 2020; all-mpnet-base-v2): a RoBERTa without segments, whose scores know distances, as T5's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from model.checkpoints import bert, roberta
from model.checkpoints.family import Family, HFConfig, Names, norms_and_biases, require
from model.config import HeadKind, RelativeConfig, TransformerConfig

BUCKETS = 32  # which transformers computes with, whatever a file says


def mpnet_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of an MPNet."""
    require(config, relative_attention_num_buckets=BUCKETS)
    made = roberta.configure(config, roberta.PADDING)  # whatever a file says, as in transformers
    relative = RelativeConfig("bucketed", BUCKETS)
    return replace(
        made,
        attention=replace(made.attention, relative=relative),
        embeddings=replace(made.embeddings, segments=0),  # whatever a file says
    )


DEFAULTS = {
    **bert.DEFAULTS,
    "vocab_size": 30527,
    "relative_attention_num_buckets": BUCKETS,
    "type_vocab_size": 0,
}

LAYER, BLOCK = bert.LAYER, bert.BLOCK
BODY: Names = {
    **{name: target for name, target in roberta.BODY.items() if ".attention." not in name and "token_type" not in name},
    "encoder.relative_attention_bias.weight": "encoder.relative.table.weight",
    **norms_and_biases(
        {
            f"{LAYER}.attention.attn.q": f"{BLOCK}.self_attention.query",
            f"{LAYER}.attention.attn.k": f"{BLOCK}.self_attention.key",
            f"{LAYER}.attention.attn.v": f"{BLOCK}.self_attention.value",
            f"{LAYER}.attention.attn.o": f"{BLOCK}.self_attention.output",
            f"{LAYER}.attention.LayerNorm": f"{BLOCK}.self_attention_residual.norm",
        }
    ),
}
HEADS: Mapping[HeadKind, Names] = roberta.HEADS

MPNET = Family(
    mpnet_config,
    BODY,
    DEFAULTS,
    prefixes=("mpnet.",),
    computed=frozenset({"embeddings.position_ids"}) | roberta.POOLER,
    heads=HEADS,
    unused={"embed": frozenset(roberta.FILL)},
)
