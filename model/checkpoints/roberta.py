"""RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2020), CamemBERT (Martin et al. 2020): BERTs with other heads.

Positions count from behind the padding token's id, so a table's first rows belong to no token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.checkpoints import bert
from model.checkpoints.family import Family, HFConfig, Names, Parts, norms_and_biases, require
from model.config import HeadKind, TransformerConfig

PADDING = 1
FIRST_POSITION = PADDING + 1


def roberta_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a RoBERTa."""
    require(config, pad_token_id=PADDING)
    made = bert.bert_config(config)
    head = replace(made.head, activation="gelu") if made.head.kind == "fill" else made.head
    return replace(made, head=head, max_positions=made.max_positions - FIRST_POSITION)


BODY: Names = {
    **bert.BODY,
    "embeddings.position_embeddings.weight": Parts(("embeddings.positions.weight",), lambda w: (w[FIRST_POSITION:],)),
}
FILL: Names = {
    **norms_and_biases(
        {
            "lm_head.dense": "head.word_transform.dense",
            "lm_head.layer_norm": "head.word_transform.norm",
            "lm_head.decoder": "head.words.output",
        }
    ),
    "lm_head.decoder.bias": "head.words.bias",  # stored twice
    "lm_head.bias": "head.words.bias",
}
HEADS: Mapping[HeadKind, Names] = {
    **bert.HEADS,
    "classify": norms_and_biases({"classifier.dense": "head.transform.dense", "classifier.out_proj": "head.output"}),
    "fill": FILL,
}
POOLER = frozenset(bert.POOLER)  # which no head uses


def _family(**defaults: Any) -> Family:
    return Family(
        roberta_config,
        BODY,
        {**bert.DEFAULTS, "pad_token_id": PADDING, **defaults},
        prefixes=("roberta.",),
        computed=frozenset({"embeddings.position_ids"}) | POOLER,
        heads=HEADS,
        unused={"embed": frozenset(FILL)},
    )


ROBERTA = _family(vocab_size=50265)
XLM_ROBERTA = CAMEMBERT = _family()
