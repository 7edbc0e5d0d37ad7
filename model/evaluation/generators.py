"""What is measured of a generator: how well it foresees each token of texts it never saw."""

from __future__ import annotations

import math

import numpy as np

from model.evaluation.opened import Evaluation, Measured
from model.export.naive import NaiveDecoder
from model.package import PackageError
from model.progress import with_bar
from model.training.readers import story_of


def evaluate_generator(evaluation: Evaluation) -> Measured:
    """Measure the perplexity of stories per token and per word.

    Raises `PackageError` for a model that turns texts into texts.
    """
    if "encoder" in evaluation.manifest.graphs:
        raise PackageError(f"{evaluation.folder}: there is no test data here for what turns texts into texts")
    figures = []
    for split in ("validation", "test"):
        texts = list(filter(None, map(story_of, evaluation.rows(f"tinystories_subset/{split}.jsonl.xz"))))
        total, tokens, words = 0.0, 0, 0
        for text in with_bar(texts, desc="perplexity"):
            likelihood, count, kept = _log_likelihood(evaluation, text)
            total, tokens, words = total + likelihood, tokens + count, words + len(kept.split())
        dataset = f"tinystories_subset/{split}"
        figures.append(evaluation.figure(dataset, "perplexity per token", math.exp(-total / tokens)))
        figures.append(evaluation.figure(dataset, "perplexity per word", math.exp(-total / words)))
    return Measured(figures)


def _log_likelihood(evaluation: Evaluation, text: str) -> tuple[float, int, str]:
    """Return Σ log p of a text's first `max_positions` tokens, its end token included, their number, and their text."""
    manifest = evaluation.manifest
    assert manifest.special_ids.start is not None and manifest.special_ids.end is not None
    assert manifest.cache is not None
    encoding = evaluation.tokenizer.encode(text, adds_special=False)  # start and end are added here, once
    ids = [manifest.special_ids.start, *encoding.ids, manifest.special_ids.end]
    ids = ids[: manifest.limits.max_positions + 1]
    kept = text[: encoding.offsets[min(len(ids) - 1, len(encoding.ids)) - 1][1]]
    inputs = np.array([ids[:-1]], np.int64)
    length = inputs.shape[1]
    decoder = NaiveDecoder(evaluation.graphs["decoder"], manifest.cache, 1, length)
    logits = decoder.step(inputs, np.array([length]), 0)[0].astype(np.float64)
    largest = logits.max(-1)
    log_sum = largest + np.log(np.exp(logits - largest[:, None]).sum(-1))
    return float((logits[np.arange(len(ids) - 1), ids[1:]] - log_sum).sum()), len(ids) - 1, kept
