"""EuroBERT (Boizard et al. 2025): a Llama whose tokens see those behind them, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import HFConfig, Names, norms_and_biases, with_prefix
from model.checkpoints.fields import either, field_names, unsupported
from model.checkpoints.heads import head_kind, num_labels
from model.checkpoints.llama import DEFAULTS, NAMES, attention, configure, family
from model.config import HeadConfig, HeadKind, Pooling, TransformerConfig

POOLINGS: dict[str, Pooling] = {"bos": "first", "mean": "mean", "late": "late"}


def eurobert_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of a EuroBERT."""
    return configure(config, attention(config, bias=config["attention_bias"]), encoder_head=_head(config))


def _head(config: HFConfig) -> HeadConfig:
    """Return the head that a checkpoint has."""
    kind, pooling = head_kind(config, HEADS), either(config, "clf_pooling", "classifier_pooling", "late")
    if pooling not in POOLINGS:
        raise CheckpointError(unsupported("classifier_pooling", pooling, f"only {', '.join(POOLINGS)} are supported"))
    words = HeadConfig("fill", bias=config["mlp_bias"], tied=config["tie_word_embeddings"])
    if kind in {"embed", "fill"}:
        return HeadConfig("embed") if kind == "embed" else words
    if kind == "tag":
        return HeadConfig("tag", num_labels(config), bias=True)
    return HeadConfig(
        "classify", num_labels(config), pooling=POOLINGS[pooling], dense=True, activation="gelu", bias=True
    )


EUROBERT_DEFAULTS = {
    **DEFAULTS,
    "num_key_value_heads": None,
    "rms_norm_eps": 1e-5,
    "is_causal": False,
    "classifier_pooling": None,
    "clf_pooling": None,  # its older name
}
HARMLESS = field_names("auto_map")
FILL: Names = {"lm_head.weight": "head.words.output.weight", "lm_head.bias": "head.words.bias"}
CLASSIFIER = norms_and_biases({"classifier": "head.output"})
HEADS: Mapping[HeadKind, Names] = {
    "classify": {**CLASSIFIER, **norms_and_biases({"dense": "head.transform.dense"})},
    "tag": CLASSIFIER,
    "fill": FILL,
    "embed": {},
}

EUROBERT = replace(
    family(eurobert_config, EUROBERT_DEFAULTS, HARMLESS, with_prefix(NAMES, "decoder.", "encoder.")),
    heads=HEADS,
    unused={"embed": frozenset(FILL)},
)
