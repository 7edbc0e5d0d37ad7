"""Scores of pairs that nobody scored, by a model that reads both texts together.

It compares better than vectors do, which learn from what it says of many pairs beside what people say of few (Thakur et
al. 2021, "Augmented SBERT", where such scores are called silver). Vectors that have learned so err elsewhere than what
taught them, and both together are righter than either. So a second run begins with such vectors, and learns the first
teacher's scores, given out anew in the order that the teacher and these vectors make together.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from model.architectures import Transformer
from model.training.errors import RunError
from model.training.objectives import Contrastive, ScorePairs
from model.training.objectives.pair import Pair, turned
from model.training.teacher import Teacher, cosines_of, labels_texts, logits_of

BATCH_TOKENS = 8192
SHARE_OF_COSINES = 0.5  # beside the log odds of what reads both texts together


def with_silver_scores(teacher: Teacher, tokenizer: Tokenizer, rows: list[Pair], max_length: int) -> list[Pair]:
    """Return pairs of which those of unknown score have the teacher's, 0 to 1.

    Of a model that scores pairs it is the mean of what it says of both orders. A model that makes vectors gives out the
    scores of its own teacher anew, in the order that the two make together. Where the teacher says nothing the pairs
    stay as they are. Raises `RunError` if it compares no pairs, or a file has scores of others.
    """
    unknown = list(filter(_is_unknown, rows))
    texts = [f"{pair.first}\t{pair.second}" for pair in unknown]

    def ask(model: Transformer) -> NDArray[np.float64]:
        if model.config.head.kind == "embed":
            return in_order_of_both(teacher.scores_of_its_own(texts), _cosines(model, tokenizer, unknown, max_length))
        return _scores(model, tokenizer, unknown, max_length)

    said = teacher.says(texts, ask)
    if said is None:
        return rows
    scores = iter(said.tolist())
    return [replace(pair, score=next(scores)) if _is_unknown(pair) else pair for pair in rows]


def _is_unknown(pair: Pair) -> bool:
    return pair.score is not None and math.isnan(pair.score)


def in_order_of_both(scores: NDArray[np.float64], cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores, (N,) between 0 and 1, given out anew: the highest to what their log odds and cosines place first.

    Both are compared by standard deviations, and cosines count for less, as they are less often right.
    """
    log_odds = np.log(scores) - np.log1p(-scores)
    order = np.argsort(_standardised(log_odds) + SHARE_OF_COSINES * _standardised(cosines), kind="stable")
    given = np.empty_like(scores)
    given[order] = np.sort(scores)
    return given


def _standardised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return (values - values.mean()) / (values.std() or 1)


def _cosines(teacher: Transformer, tokenizer: Tokenizer, pairs: list[Pair], max_length: int) -> NDArray[np.float64]:
    """Return the cosine of each pair's vectors, (N,)."""
    objective = Contrastive(tokenizer, max_length, temperature=1)  # which cosines are not divided by
    objective.encode(pairs)
    return cosines_of(teacher, objective, len(pairs), BATCH_TOKENS).numpy().astype(np.float64)


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
