"""How alike the vectors of texts are: the larger, the more, as sentence-transformers counts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from model.package import Similarity
from service.engine.arrays import Array


def similarities(kind: Similarity, vector: Array, others: Array) -> Array:
    """Return how alike a vector (1, D) is to others (N, D), each by itself: (N,).

    Summed row by row, and not by a product of matrices: what a text comes to does not depend on the other texts.
    """
    return SIMILARITIES[kind](vector.astype(np.float64), others.astype(np.float64))


def _products(vector: Array, others: Array) -> Array:
    products: Array = (others * vector).sum(-1)
    return products


def _cosines(vector: Array, others: Array) -> Array:
    """Return cosines, which are 0 where a vector has length 0."""
    # With lengths of the same sums a text's cosine with itself is 1.
    lengths = np.sqrt((vector**2).sum(-1) * (others**2).sum(-1))
    cosines: Array = _products(vector, others) / np.where(lengths > 0, lengths, 1)
    return cosines.clip(-1, 1)  # rounded, it may be a little more than 1


def _less_the_distance(vector: Array, others: Array) -> Array:
    distances: Array = np.sqrt(((others - vector) ** 2).sum(-1))
    return -distances


def _less_the_steps(vector: Array, others: Array) -> Array:
    steps: Array = np.abs(others - vector).sum(-1)
    return -steps


SIMILARITIES: Mapping[Similarity, Callable[[Array, Array], Array]] = {
    "cosine": _cosines,
    "dot": _products,
    "euclidean": _less_the_distance,
    "manhattan": _less_the_steps,
}
