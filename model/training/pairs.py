"""Pairs of sentences: those that people scored, those that belong together, and those that a model is to score."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import normalize

from model.training.files import Row, Split, SplitOrTest, read_rows
from model.training.nli import ENTAILMENTS, SICK, read_entailment
from model.training.objectives.pair import UNKNOWN, Pair, turned
from model.training.readers import bare, read_pairs

ALIKE = ("alike",)
_WORD = re.compile(r"\w+")
# How many pairs are to be scored: the nearest of each scored sentence, and of what else compares two sentences.
_NEAREST, _PREMISES, _PARAPHRASES = 7, 45_000, 5_000
_MAX_PREMISE_LENGTH = 200  # letters
_BEST = 5  # the score of two sentences that mean the same


def read_scored_pairs(data: Path, split: SplitOrTest) -> list[Pair]:
    """Read pairs of sentences with how alike people judged them, 0 to 1.

    For training those are left out that are tested on, and those whose licence forbids commercial use.
    """
    pairs = [
        Pair(row["sentence1"], row["sentence2"], _score(row) / _BEST)
        for row in read_rows(data / "stsb" / f"{split}.tsv.xz")
    ]
    if split != "train":
        return pairs
    held_out, non_commercial = _held_out(data), _non_commercial(data)
    return [pair for pair in pairs if (both := _bare_pair(pair)) not in held_out and not both <= non_commercial]


def _score(row: Row) -> float:
    """Return how alike people judged a pair; raises `DataError` for what is no such score."""
    given = row["score"]
    try:
        score = float(given)
    except ValueError:
        score = math.nan
    if not 0 <= score <= _BEST:  # NaN is not, either
        raise row.error(f"its score is {given!r}; it must be a number from 0 to {_BEST}")
    return score


def _held_out(data: Path) -> set[frozenset[str]]:
    """Return the pairs that are validated and tested on."""
    others: tuple[SplitOrTest, ...] = ("validation", "test")
    return {_bare_pair(pair) for other in others for pair in read_scored_pairs(data, other)}


def _non_commercial(data: Path) -> set[str]:
    """Return the sentences of MRPC and SICK, bare: STS-B has pairs of both, and does not say which they are."""
    mrpc, nli = ("train", "validation", "test"), ("train", "validation", "test_sick")
    paraphrases = (row for file in mrpc for row in read_rows(data / "mrpc" / f"{file}.tsv.xz"))
    inferences = (row for file in nli for row in read_rows(data / "nli_mix" / f"{file}.tsv.xz"))
    texts = [text for row in paraphrases for text in (row["sentence1"], row["sentence2"])]
    texts += [text for row in inferences if row["source"] == SICK for text in (row["premise"], row["hypothesis"])]
    return {bare(text) for text in texts}


def _bare_pair(pair: Pair) -> frozenset[str]:
    return frozenset((bare(pair.first), bare(pair.second)))


def read_scored_pairs_both_ways(data: Path, split: Split) -> list[Pair]:
    """Read scored pairs, and each turned: what compares two sentences should say the same of both orders."""
    pairs = read_scored_pairs(data, split)
    return pairs + turned(pairs)


def read_pairs_for_vectors(data: Path, split: Split) -> list[Pair]:
    """Read scored pairs; for training three times over, with pairs to be scored and others that belong together.

    The latter are paraphrases, what follows from what, and questions with their paragraphs. Paragraphs are long and
    teach less of what sentences mean, so only every third is here.
    """
    scored = read_scored_pairs(data, split)
    if split == "validation":
        return scored
    rng = random.Random(1)
    questions = [
        Pair(rng.choice(row["qas"])["question"], row["context"])
        for row in itertools.islice(read_rows(data / "squad11" / "train.jsonl.xz"), 0, None, 3)
        if row["qas"]
    ]
    paraphrases = _paraphrases(data)
    inferences = read_entailment(data, "train")
    entailed = [Pair(*pair) for pair, label in inferences if ENTAILMENTS[label] == "entailment"]
    to_be_scored = [
        *pairs_near_by_words(sorted({text for pair in scored for text in (pair.first, pair.second)}), _NEAREST),
        *_some([pair for pair, _ in inferences if len(pair[0]) < _MAX_PREMISE_LENGTH], _PREMISES, rng),
        *_some([(pair.first, pair.second) for pair in paraphrases], _PARAPHRASES, rng),
    ]
    known = _held_out(data) | {_bare_pair(pair) for pair in scored}
    unscored = [pair for pair in (Pair(*texts, UNKNOWN) for texts in to_be_scored) if _bare_pair(pair) not in known]
    return scored * 3 + unscored + paraphrases + entailed + questions


def _some(pairs: list[tuple[str, str]], count: int, rng: random.Random) -> list[tuple[str, str]]:
    return rng.sample(pairs, min(count, len(pairs)))


def _paraphrases(data: Path) -> list[Pair]:
    """Return English sentences of Tatoeba that have a translation in common, two at a time."""
    by_translation: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for language, english, other in read_pairs(data, "train"):
        by_translation[language, other][bare(english)] = english
    pairs = {pair for alike in by_translation.values() for pair in itertools.pairwise(sorted(alike.values()))}
    return [Pair(first, second) for first, second in sorted(pairs)]


def pairs_near_by_words(texts: Sequence[str], count: int, dimensions: int = 512) -> Iterator[tuple[str, str]]:
    """Yield each text with the `count` others that have most in common with it, each pair once.

    Texts are compared by the cosine of their words' weights, log(texts / texts with the word). Each word stands for a
    random direction of as many `dimensions`, which changes cosines by hundredths (Johnson and Lindenstrauss 1984).
    """
    words = [set(_WORD.findall(text.lower())) for text in texts]
    frequencies = Counter(itertools.chain.from_iterable(words))
    rng = np.random.default_rng(1)
    directions = {
        word: rng.standard_normal(dimensions, np.float32) * math.log((1 + len(texts)) / frequency)
        for word, frequency in sorted(frequencies.items())
    }
    sums = np.zeros((len(texts), dimensions), np.float32)
    for place, some in enumerate(words):
        for word in sorted(some):
            sums[place] += directions[word]
    vectors = normalize(torch.from_numpy(sums), dim=-1)
    seen: set[tuple[int, int]] = set()
    for start in range(0, len(texts), 2048):
        cosines = vectors[start : start + 2048] @ vectors.T
        cosines[torch.arange(len(cosines)), torch.arange(start, start + len(cosines))] = -torch.inf  # each with itself
        for index, row in enumerate(cosines.topk(min(count, len(texts) - 1)).indices.tolist(), start):
            near = {(min(index, other), max(index, other)) for other in row} - seen
            seen |= near
            yield from ((texts[first], texts[second]) for first, second in sorted(near))
