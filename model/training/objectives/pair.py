"""Two texts to compare, and how well what a model says of them agrees with what people say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

UNKNOWN = math.nan  # the score of a pair that another model is to score


@dataclass(frozen=True)
class Pair:
    """Two texts, and how alike they are, 0 to 1 or unknown; without a score they simply belong together."""

    first: str
    second: str
    score: float | None = None


def turned(pairs: Sequence[Pair]) -> list[Pair]:
    """Return pairs with the second text first."""
    return [replace(pair, first=pair.second, second=pair.first) for pair in pairs]


def order_agreement(scores: Sequence[tuple[list[float], list[float]]]) -> dict[str, float]:
    """Name the rank correlation, −1 to 1, of what a model says and what people say of each batch's pairs."""
    said, truths = ([value for batch in column for value in batch] for column in zip(*scores, strict=True))
    return {"Spearman": spearman(np.array(said), np.array(truths))}


def spearman(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return Spearman's rank correlation: Pearson's of the ranks, equal values sharing their mean rank.

    It is 0 where all values of one are equal, which have no order.
    """
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(np.corrcoef(_ranks(first), _ranks(second))[0, 1])


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return ranks
