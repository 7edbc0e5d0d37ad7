"""ELECTRA (Clark et al. 2020): a BERT whose embeddings may be narrower than its layers, with heads of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from model.checkpoints import bert
from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import Family, HFConfig, Names, norms_and_biases, require
from model.checkpoints.fields import field_names, unsupported
from model.config import HeadKind, TransformerConfig

DISCRIMINATOR = "ElectraForPreTraining"


def electra_config(config: HFConfig) -> TransformerConfig:
    """Return our configuration of an ELECTRA."""
    classes = config.get("architectures")
    if classes == [DISCRIMINATOR]:
        raise CheckpointError(unsupported("architectures", classes, "it tells replaced words, and must be fine-tuned"))
    require(config, add_cross_attention=False)
    made, width = bert.bert_config(config), config["embedding_size"]
    head = made.head if made.head.kind not in {"classify", "fill"} else replace(made.head, activation="gelu")
    narrow = None if width == made.d_model else width
    return replace(made, embeddings=replace(made.embeddings, width=narrow), head=head)


DEFAULTS = {
    **bert.DEFAULTS,
    "embedding_size": 128,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
}
# Of a head for multiple choice, and of the generator that it was trained beside.
HARMLESS = field_names("summary_type summary_use_proj summary_activation summary_last_dropout generator_size")

FILL: Names = {
    **norms_and_biases(
        {
            "generator_predictions.dense": "head.word_transform.dense",
            "generator_predictions.LayerNorm": "head.word_transform.norm",
            "generator_lm_head": "head.words.output",
        }
    ),
    "generator_lm_head.bias": "head.words.bias",
}
REPLACED = norms_and_biases({f"discriminator_predictions.{part}": "" for part in ("dense", "dense_prediction")})
HEADS: Mapping[HeadKind, Names] = {
    **bert.HEADS,
    "classify": norms_and_biases({"classifier.dense": "head.transform.dense", "classifier.out_proj": "head.output"}),
    "fill": FILL,
}

ELECTRA = Family(
    electra_config,
    {**bert.BODY, **norms_and_biases({"embeddings_project": "embeddings.project"})},
    DEFAULTS,
    HARMLESS,
    prefixes=("electra.",),
    computed=frozenset({"embeddings.position_ids"}),
    heads=HEADS,
    unused={"embed": frozenset({**FILL, **REPLACED})},
)
