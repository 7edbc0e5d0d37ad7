"""The heads that all families of decoders have: words, or labels and vectors by the last token."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from model.checkpoints.errors import CheckpointError
from model.checkpoints.family import OUTPUTS, Family, HFConfig, Names, Parts, norms_and_biases, targets_of
from model.checkpoints.fields import unsupported
from model.checkpoints.heads import HEADLESS, OF_DECODERS, head_kind, is_bare, num_labels
from model.config import HeadConfig, HeadKind, TransformerConfig

WORDS: Names = dict.fromkeys(("lm_head.weight", "embed_out.weight"), "head.output.weight")  # the latter in GPT-NeoX
HEADS: Mapping[HeadKind, Names] = {
    "words": WORDS,
    "classify": {"score.weight": "head.output.weight"},
    "tag": norms_and_biases({"score": "head.output", "classifier": "head.output"}),  # the latter in the GPTs
    "embed": {},
}
# Others are made of a model of words, whose output matrix may have been left in the file.
UNUSED: Mapping[HeadKind, frozenset[str]] = dict.fromkeys(("classify", "tag", "embed"), frozenset(WORDS))


def decoder_head(config: HFConfig) -> HeadConfig:
    """Return the head that a decoder's checkpoint has; of none that it names, words."""
    kind = head_kind(config, HEADS, OF_DECODERS) if config.get("architectures") else "words"
    tied = config["tie_word_embeddings"]  # which means nothing to other heads
    if kind == "words":
        return HeadConfig(tied=tied)
    if kind == "embed":
        return HeadConfig("embed", pooling="last")
    return HeadConfig(kind, num_labels(config), pooling="last", bias=kind == "tag")


def bare_decoder(family: Family, config: HFConfig) -> str | None:
    """Return the class of a decoder's checkpoint if it is one without a head, as GPT2Model."""
    classes = config.get("architectures")
    named = str(classes[0]) if isinstance(classes, list) and len(classes) == 1 else ""
    return named if is_bare(named) and {"words", "embed"} <= family.heads.keys() else None


def as_writer(config: HFConfig) -> HFConfig:
    """Return the config.json of the same decoder with a head that writes."""
    return {**config, "architectures": ["DecoderForCausalLM"]}


def check_writer(family: Family, config: TransformerConfig, tensors: Collection[str], named: str) -> None:
    """Raise `CheckpointError` for a decoder of the class `named`, without a head, unless its weights are a writer's.

    Some files of writers name that class. They have an output matrix, or, where it is tied, the prefix of a model
    within another, neither of which is in files of what makes vectors.
    """
    words = family.with_head("words")
    has_output = any(not OUTPUTS.isdisjoint(targets_of(words, name)) for name in tensors)
    if has_output or (config.head.tied and any(name.startswith(family.prefixes) for name in tensors)):
        return
    otherwise = "if it writes texts, name a class that ends in ForCausalLM in a copy, and import the copy"
    raise CheckpointError(unsupported("architectures", [named], f"{HEADLESS}; {otherwise}"))


def by_heads(theirs: str, *ours: str) -> dict[str, Parts]:
    """Return the names of a linear map that is several of ours, which stand below one another within each head."""
    return {
        f"{theirs}.{part}": Parts(
            tuple(f"{name}.{part}" for name in ours),
            lambda heads: tuple(each.flatten(0, 1) for each in heads.chunk(len(ours), dim=1)),
            rows="query head",
        )
        for part in ("weight", "bias")
    }
