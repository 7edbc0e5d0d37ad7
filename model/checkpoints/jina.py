"""Jina Embeddings 2 (Günther et al. 2023): a BERT whose scores fall with the distance, with gated feed-forward.

Its files call it a BERT too, of the positions `alibi`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from model.checkpoints import bert
from model.checkpoints.family import HFConfig, Names, Parts, norms_and_biases, require
from model.checkpoints.fields import field_names
from model.config import HeadKind, PositionsConfig, RelativeConfig, TransformerConfig

ALIBI = "alibi"


def jina_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a Jina Embeddings 2."""
    require(config, position_embedding_type=ALIBI, feed_forward_type="geglu", hidden_act="gelu", is_decoder=False)
    made = bert.configure(config, HEADS)
    return replace(
        made,
        attention=replace(made.attention, relative=RelativeConfig("linear")),
        positions=PositionsConfig("none"),
        feed_forward=replace(made.feed_forward, gated=True),
    )


DEFAULTS = {**bert.DEFAULTS, "position_embedding_type": ALIBI, "feed_forward_type": "original"}
# What was pooled in training, which sentence-transformers' files say too, and how it was computed.
HARMLESS = bert.HARMLESS | field_names("auto_map emb_pooler")

LAYER, BLOCK = bert.LAYER, bert.BLOCK
EXPAND, GATE = f"{BLOCK}.feed_forward.expand", f"{BLOCK}.feed_forward.gate"
BODY: Names = {
    **{name: target for name, target in bert.BODY.items() if "embeddings." in name or ".attention." in name},
    f"{LAYER}.mlp.gated_layers.weight": Parts((f"{GATE}.weight", f"{EXPAND}.weight"), lambda both: both.chunk(2)),
    **norms_and_biases(
        {
            f"{LAYER}.mlp.wo": f"{BLOCK}.feed_forward.contract",
            f"{LAYER}.mlp.layernorm": f"{BLOCK}.feed_forward_residual.norm",
        }
    ),
}

HEADS: Mapping[HeadKind, Names] = {"embed": {}}

JINA = replace(
    bert.BERT,
    configure=jina_config,
    names=BODY,
    defaults=DEFAULTS,
    harmless=HARMLESS,
    heads=HEADS,
    optional=frozenset({f"{EXPAND}.bias", f"{GATE}.bias"}),
)
