"""RoBERTa (Liu et al. 2019), XLM-RoBERTa (Conneau et al. 2020), CamemBERT (Martin et al. 2020): BERTs with other heads.

Positions count from behind the padding token's id, so a table's first rows belong to no token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.checkpoints import bert
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import Family, HFConfig, Names, Parts, norms_and_biases
from model.checkpoints.fields import unsupported
from model.config import HeadKind, TransformerConfig

ROBERTAS = frozenset({"camembert", "roberta", "xlm-roberta"})  # the `model_type` of these
PADDING = 1  # of the published ones


def roberta_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a RoBERTa."""
    padding = config["pad_token_id"]
    if not isinstance(padding, int) or padding < 0:
        raise CheckpointError(unsupported("pad_token_id", padding, "it must be an id, which positions count from"))
    return configure(config, padding)


def configure(config: HFConfig, padding: int) -> TransformerConfig:
    """Return our configuration of what counts its positions from behind an id."""
    made = bert.bert_config(config)
    head = replace(made.head, activation="gelu") if made.head.kind == "fill" else made.head
    return replace(made, head=head, max_positions=made.max_positions - padding - 1)


def positions(padding: int) -> Names:
    """Return the table of positions, whose first rows belong to no token."""
    parts = Parts(("embeddings.positions.weight",), lambda rows: (rows[padding + 1 :],))
    return {"embeddings.position_embeddings.weight": parts}


def with_padding(family: Family, config: HFConfig) -> Family:
    """Return a family of RoBERTas as it is with the padding that a config.json names."""
    padding = config.get("pad_token_id", PADDING)
    return replace(family, names={**family.names, **positions(padding)}) if isinstance(padding, int) else family


BODY: Names = {**bert.BODY, **positions(PADDING)}
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
