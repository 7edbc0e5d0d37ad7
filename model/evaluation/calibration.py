"""Whether a classifier is as often right as it says (Guo et al. 2017, "On Calibration of Modern Neural Networks")."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BINS = 15
LOWEST, HIGHEST = 0.05, 20.0  # temperatures; validation data without a mistake would have 0


def probabilities(logits: NDArray[np.floating], temperature: float = 1.0) -> Array:
    """Return the softmax of logits (N, labels) over a temperature, in float64."""
    scaled = logits.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def sigmoid(logits: NDArray[np.floating]) -> Array:
    """Return the sigmoid of each logit, in float64."""
    return 0.5 + 0.5 * np.tanh(logits.astype(np.float64) / 2)  # which overflows nowhere


def by_confidence(scores: Array, truth: NDArray[np.int64]) -> tuple[Array, Array, Array]:
    """Sort answers into 15 bins of equal width by the score of the label that is answered.

    Returns of each bin (15,) the share of answers, their mean score and how often they are right; 0 where it is empty.
    """
    confidence, right = scores.max(-1), scores.argmax(-1) == truth
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    counts = np.bincount(place, minlength=BINS)
    some = np.maximum(counts, 1)
    means, shares = (np.bincount(place, values, BINS) / some for values in (confidence, right))
    return counts / len(truth), means, shares


def expected_calibration_error(scores: Array, truth: NDArray[np.int64]) -> float:
    """Return by how much scores (N, labels) and the share of right answers differ, weighted over the bins; 0 to 1."""
    weight, confidence, accuracy = by_confidence(scores, truth)
    return float((weight * np.abs(accuracy - confidence)).sum())


def fit_temperature(logits: NDArray[np.floating], truth: NDArray[np.int64]) -> float:
    """Return the temperature at which logits (N, labels) make the true labels (N,) likeliest.

    The likelihood is concave in the temperature's inverse, and its slope is what the true labels' logits have more than
    is expected of them; bisection finds where the slope is 0.
    """
    numbers = logits.astype(np.float64)
    of_truth = numbers[np.arange(len(truth)), truth]
    low, high = 1 / HIGHEST, 1 / LOWEST
    for _ in range(60):
        middle = (low + high) / 2
        expected = (probabilities(numbers, 1 / middle) * numbers).sum(-1)
        low, high = (middle, high) if (of_truth - expected).mean() > 0 else (low, middle)
    return 2 / (low + high)


def draw_reliability(curves: Mapping[str, Mapping[str, tuple[Array, Array, Array]]]) -> bytes:
    """Draw how often answers are right by how sure they are: of each data set a picture, of each way a line; in PNG."""
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(4 * len(curves), 4), layout="constrained")
    for axes, (dataset, ways) in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves.items(), strict=True):
        axes.plot([0, 1], [0, 1], color="grey", linestyle=":", label="honest")
        for way, (weight, confidence, accuracy) in ways.items():
            there = weight > 0
            axes.plot(confidence[there], accuracy[there], marker=".", label=way)
        axes.set(title=dataset, xlabel="score of the answer", ylabel="share of right answers", xlim=(0, 1), ylim=(0, 1))
        axes.grid(alpha=0.3)
        axes.legend(loc="upper left")
    picture = BytesIO()
    figure.savefig(picture, dpi=80, format="png")
    return picture.getvalue()
