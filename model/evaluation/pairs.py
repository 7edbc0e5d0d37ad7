"""What is measured of a model that compares texts: whether it finds those alike that people do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from model.evaluation.card import EXAMPLES, by_length, evenly, slices
from model.evaluation.opened import Evaluation, Measured
from model.package import Example, PackageError
from model.training.objectives.pair import Pair, spearman
from model.training.pairs import ALIKE, read_scored_pairs


def evaluate_embeddings(evaluation: Evaluation) -> Measured:
    """Measure the rank correlation of cosines with how alike people judged pairs of sentences."""
    pairs = list(islice(read_scored_pairs(evaluation.data, "test"), evaluation.limit))
    embedding = evaluation.manifest.embedding
    prompt = embedding.prompts[embedding.default_prompt] if embedding and embedding.default_prompt else ""
    texts = [prompt + text for pair in pairs for text in (pair.first, pair.second)]
    vectors, lengths = evaluation.run_texts(texts, "embeddings")
    vectors /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.finfo(np.float32).tiny)
    cosines = (vectors[::2] * vectors[1::2]).sum(-1)
    return _compared(evaluation, pairs, cosines.astype(np.float64), lengths[::2] + lengths[1::2])


def evaluate_scores(evaluation: Evaluation) -> Measured:
    """Measure the rank correlation of a pair's score with how alike people judged the pair."""
    if tuple(evaluation.manifest.labels) != ALIKE:
        raise PackageError(f"{evaluation.folder}: there is no test data for what its score means")
    pairs = list(islice(read_scored_pairs(evaluation.data, "test"), evaluation.limit))
    logits, lengths = evaluation.run_texts([(pair.first, pair.second) for pair in pairs], "logits")
    return _compared(evaluation, pairs, logits[:, 0].astype(np.float64), lengths)


def _compared(
    evaluation: Evaluation, pairs: Sequence[Pair], found: NDArray[np.float64], lengths: NDArray[np.int64]
) -> Measured:
    """Compare numbers (N,) that pairs were given with people's scores; `lengths` are in tokens, of both texts."""
    dataset, scores = "stsb/test", np.array([pair.score for pair in pairs])
    figures = [evaluation.figure(dataset, "Spearman", spearman(found, scores))]
    if evaluation.limit is not None:
        return Measured(figures)
    several = {name: rows for name, rows in by_length(lengths).items() if rows.sum() > 1}  # one pair has no order
    parts = slices(dataset, "Spearman", several, lambda rows: spearman(found[rows], scores[rows]))
    unpicked = [
        # Whose words these are, and under which terms, is not known of each pair, so none is quoted.
        Example(dataset=dataset, input=f"pair {row}", truth=f"{scores[row]:.2f}", answer=f"{found[row]:.2f}")
        for row in evenly(range(len(pairs)), EXAMPLES)
    ]
    return Measured(figures, {"slices": parts, "examples": unpicked})
