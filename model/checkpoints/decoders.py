"""The heads that all families of decoders have: words, or labels and vectors by the last token."""

from __future__ import annotations

from collections.abc import Mapping

from model.checkpoints.family import HFConfig, Names, Parts, norms_and_biases
from model.checkpoints.heads import head_kind, num_labels
from model.config import HeadConfig, HeadKind

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
    kind = head_kind(config, HEADS) if config.get("architectures") else "words"
    tied = config["tie_word_embeddings"]  # which means nothing to other heads
    if kind == "words":
        return HeadConfig(tied=tied)
    if kind == "embed":
        return HeadConfig("embed", pooling="last")
    return HeadConfig(kind, num_labels(config), pooling="last", bias=kind == "tag")


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
