"""Scores of pairs that nobody scored, by a model that reads both texts together.

It compares better than vectors do, which learn from what it says of many pairs beside what people say of few (Thakur et
al. 2021, "Augmented SBERT", where such scores are called silver).
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from model.architectures import Transformer
from model.training.errors import RunError
from model.training.objectives import ScorePairs
from model.training.objectives.pair import Pair, turned
from model.training.teacher import labels_texts, logits_of, said_once

BATCH_TOKENS = 8192


def with_silver_scores(
    teacher: Transformer | None, tokenizer: Tokenizer, rows: list[Pair], file: Path, max_length: int
) -> list[Pair]:
    """Return pairs of which those of unknown score have the teacher's, 0 to 1: the mean of what it says of both orders.

    It is written to `file`, or read from it where it is there. Without a teacher and a file the pairs stay as they are.
    Raises `RunError` if the teacher does not score pairs, or the file has scores of others.
    """
    unknown = list(filter(_is_unknown, rows))
    texts = [f"{pair.first}\t{pair.second}" for pair in unknown]
    said = said_once(file, texts, None if teacher is None else lambda: _scores(teacher, tokenizer, unknown, max_length))
    if said is None:
        return rows
    scores = iter(said.tolist())
    return [replace(pair, score=next(scores)) if _is_unknown(pair) else pair for pair in rows]


def _is_unknown(pair: Pair) -> bool:
    return pair.score is not None and math.isnan(pair.score)


def _scores(teacher: Transformer, tokenizer: Tokenizer, pairs: list[Pair], max_length: int) -> NDArray[np.float64]:
    """Return a score for each pair, (N,)."""
    if not labels_texts(teacher, 1):
        raise RunError(
            "pairs are to be scored by the model that this run begins with, and it scores none; begin with a run of "
            "finetune-score-pairs"
        )
    one, other = (_logits(teacher, tokenizer, some, max_length) for some in (pairs, turned(pairs)))
    return 1 / (1 + np.exp(-(one + other) / 2))


def _logits(teacher: Transformer, tokenizer: Tokenizer, pairs: list[Pair], max_length: int) -> NDArray[np.float64]:
    """Return what the teacher says of each pair, (N,)."""
    objective = ScorePairs(tokenizer, max_length)
    objective.encode(pairs)
    return logits_of(teacher, objective, len(pairs), BATCH_TOKENS).numpy().astype(np.float64)
