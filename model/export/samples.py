"""Sample texts as a model takes them: what goes through its graphs to find how large its numbers are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np
from tokenizers import Tokenizer

from model.card import Tokens
from model.config import TransformerConfig

RANDOM_ROWS, RANDOM_LENGTH = 16, 32  # where the tokenizer knows no word


@dataclass(frozen=True)
class Sample:
    """A text's tokens, and what a translation into its target language has to begin with."""

    ids: list[int]
    forced: tuple[int, ...] = ()


@dataclass(frozen=True)
class Samples:
    """Texts, and how a translator's outputs begin and end and how long they may be."""

    rows: list[Sample]
    start: int
    end: int | None
    max_positions: int


def samples_of(config: TransformerConfig, tokens: Tokens, texts: Sequence[str]) -> Samples:
    """Return texts as a model takes them; each goes into another of a translator's languages, in turn.

    Where all tokens of each text are the same, as those of a tokenizer that knows none of the words, there are random
    ids, and random outputs, too.
    """
    tokenizer = Tokenizer.from_file(str(tokens.file))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    special, longest = tokens.special_ids, config.max_positions - 4
    encoded = [ids for text in texts if (ids := tokenizer.encode(text).ids) and max(ids) < config.vocab_size]
    said = list(zip(encoded, _ways(tokens), strict=False))
    if not any(len(set(ids)) > 1 for ids in encoded):
        drawn = np.random.default_rng(0).integers(0, config.vocab_size, (RANDOM_ROWS, 2, RANDOM_LENGTH)).tolist()
        said += [(ids, ([], tuple(output))) for ids, output in drawn]
    rows = []
    for ids, (first, forced) in said:
        row = [*first, *ids][:longest]
        if config.architecture == "encoder_decoder" and special.end is not None and row[-1] != special.end:
            row.append(special.end)
        elif config.architecture == "decoder" and tokens.starts_prompts and special.start is not None:
            row.insert(0, special.start)
        rows.append(Sample(row, forced))
    return Samples(rows, special.start or 0, special.end, config.max_positions)


def _ways(tokens: Tokens) -> Iterator[tuple[list[int], tuple[int, ...]]]:
    """Yield what sources and outputs begin with, for each direction of a translator in turn, for ever."""
    languages = tokens.languages
    if languages is None:
        return cycle([([], ())])
    pairs = languages.directions or list(zip(languages.sources, reversed(languages.sources), strict=True))
    forced = [languages.first_of_target(target) for _, target in pairs]
    first = [languages.first_of_source(source, target) for source, target in pairs]
    return cycle([(ids, () if token is None else (token,)) for ids, token in zip(first, forced, strict=True)])
