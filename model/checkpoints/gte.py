"""GTE (Zhang et al. 2024, mGTE; Snowflake's Arctic Embed 2.0 too): a BERT with rotary positions and gated feed-forward.

Files have the fields and names of the code that it was published with (`model_type` new or gte), or transformers'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from model.checkpoints import bert
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import (
    Family,
    HFConfig,
    Names,
    Parts,
    activation,
    attention_maps,
    joined,
    norms_and_biases,
    projections,
    require,
)
from model.checkpoints.fields import field_names, unsupported
from model.checkpoints.rope import rotary_positions
from model.config import FeedForwardConfig, HeadKind, PositionsConfig, RotaryScaling, TransformerConfig


def gte_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a GTE."""
    require(config, **OLD_VALUES)
    made = bert.configure(config, HEADS)
    width, head = made.feed_forward.d_ff, made.head
    return replace(
        made,
        head=replace(head, activation="gelu") if head.kind == "fill" else head,
        positions=_positions(config, made.head_dim),
        feed_forward=FeedForwardConfig(width, activation(config["hidden_act"]), gated=True),
    )


def _positions(config: HFConfig, head_dim: int) -> PositionsConfig:
    """Return the rotation; texts longer than those of pretraining were reached by a larger base (bloc97 2023, "NTK").

    With a factor f the base is f times as large, and all waves turn f^(2/head_dim) times as slowly.
    """
    scaling = config["rope_scaling"] or {}
    given = {name for name, value in scaling.items() if value is not None}
    is_ntk = "ntk" in {scaling.get("type"), scaling.get("rope_type")}
    if is_ntk and given - {"type", "rope_type"} != {"factor"}:
        raise CheckpointError(unsupported("rope_scaling", scaling, "of type ntk it has a factor and nothing else"))
    fields = ("rope_parameters", "rope_theta", "rope_local_base_freq", "max_position_embeddings")
    waves = {name: config[name] for name in fields} | {"rope_scaling": None if is_ntk else scaling}
    positions = rotary_positions(waves, has_windows=False, by_type=False)
    if not is_ntk:
        return positions
    factor = scaling["factor"]
    return replace(positions, base=positions.base * factor, scaling=RotaryScaling(factor ** (2 / head_dim)))


OLD_VALUES: dict[str, Any] = {  # of fields that transformers has not
    "layer_norm_type": "layer_norm",
    "logn_attention_clip1": False,
    "logn_attention_scale": False,
    "pack_qkv": True,
    "position_embedding_type": "rope",
}
DEFAULTS = {
    **bert.DEFAULTS,
    **OLD_VALUES,
    "vocab_size": 250048,
    "max_position_embeddings": 8192,
    "type_vocab_size": 1,
    "rope_parameters": None,
    "rope_theta": 160_000.0,
    "rope_scaling": None,
    "rope_local_base_freq": None,
}
# How it is computed, and a hint to who shortens vectors.
HARMLESS = field_names("auto_map matryoshka_dimensions unpad_inputs use_memory_efficient_attention")

LAYER, OLD_LAYER, BLOCK = "layers.{}", "encoder.layer.{}", "encoder.blocks.{}"
EXPAND, GATE = f"{BLOCK}.feed_forward.expand", f"{BLOCK}.feed_forward.gate"
BODY: Names = {
    **{name: target for name, target in bert.BODY.items() if name.startswith("embeddings.")},
    **norms_and_biases(
        {
            **projections(f"{LAYER}.self_attn", f"{BLOCK}.self_attention"),
            f"{LAYER}.post_attention_layernorm": f"{BLOCK}.self_attention_residual.norm",
            f"{LAYER}.mlp.down_proj": f"{BLOCK}.feed_forward.contract",
            f"{LAYER}.post_mlp_layernorm": f"{BLOCK}.feed_forward_residual.norm",
            f"{OLD_LAYER}.attention.o_proj": f"{BLOCK}.self_attention.output",
            f"{OLD_LAYER}.attn_ln": f"{BLOCK}.self_attention_residual.norm",
            f"{OLD_LAYER}.mlp.down_proj": f"{BLOCK}.feed_forward.contract",
            f"{OLD_LAYER}.mlp_ln": f"{BLOCK}.feed_forward_residual.norm",
        }
    ),
    f"{LAYER}.mlp.up_proj.weight": f"{EXPAND}.weight",
    f"{LAYER}.mlp.gate_proj.weight": f"{GATE}.weight",
    f"{OLD_LAYER}.mlp.up_gate_proj.weight": Parts((f"{EXPAND}.weight", f"{GATE}.weight"), lambda both: both.chunk(2)),
    **joined(f"{OLD_LAYER}.attention.qkv_proj", *attention_maps(f"{BLOCK}.self_attention")),
}
FILL: Names = norms_and_biases(
    {"lm_head.dense": "head.word_transform.dense", "lm_head.layer_norm": "head.word_transform.norm"}
    | {"lm_head.norm": "head.word_transform.norm"}
) | {"lm_head.decoder.weight": "head.words.output.weight", "lm_head.decoder.bias": "head.words.bias"}
HEADS: Mapping[HeadKind, Names] = {
    "classify": bert.HEADS["classify"],
    "tag": bert.HEADS["tag"],
    "fill": FILL,
    "embed": {},
}


GTE = Family(
    gte_config,
    BODY,
    DEFAULTS,
    HARMLESS,
    prefixes=("gte.", "new."),
    heads=HEADS,
    unused={
        "tag": frozenset(bert.POOLER),
        "fill": frozenset(bert.POOLER),
        "embed": frozenset({**bert.POOLER, **FILL, **bert.CLASSIFIER}),  # the multilingual one's, of sparse vectors
    },
    optional=frozenset({f"{EXPAND}.bias", f"{GATE}.bias"}),
)
