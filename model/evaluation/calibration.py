"""Whether a model is as often right as its scores say (Guo et al. 2017, "On Calibration of Modern Neural Networks")."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from io import BytesIO

import numpy as np
from numpy.typing import NDArray

from model.package import Calibration, CalibrationError

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
Curve = tuple[Array, Array, Array]  # of each bin: the share of answers, their mean score, how often they are right

Judge = Callable[[float], tuple[Array, Mask]]  # answers' scores at a temperature, and whether they are right, (N,)

BINS = 15
LEAST_FITTED = 100  # rows of validation data that tell a temperature; of few without a mistake it would be next to 0
GOLDEN = (1 + math.sqrt(5)) / 2
LOWEST, HIGHEST = 0.05, 20.0  # temperatures; validation data without a mistake would have 0


def probabilities(logits: NDArray[np.floating], temperature: float = 1.0) -> Array:
    """Return the softmax of logits (N, labels) over a temperature, in float64."""
    scaled = logits.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max(-1, keepdims=True))
    return np.asarray(weights / weights.sum(-1, keepdims=True))


def sigmoid(logits: NDArray[np.floating]) -> Array:
    """Return the sigmoid of each logit, in float64."""
    return 0.5 + 0.5 * np.tanh(logits.astype(np.float64) / 2)  # which overflows nowhere


def judged(scores: Array, truth: NDArray[np.int64]) -> tuple[Array, Mask]:
    """Return the score of the label that is answered, and whether it is the true one, (N,), of scores (N, labels)."""
    return scores.max(-1), scores.argmax(-1) == truth


def by_confidence(confidence: Array, right: Mask) -> Curve:
    """Sort answers (N,), which are right or not, into 15 bins of equal width by their scores.

    Returns of each bin (15,) the share of answers, their mean score and how often they are right; 0 where it is empty.
    """
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    counts = np.bincount(place, minlength=BINS)
    some = np.maximum(counts, 1)
    means, shares = (np.bincount(place, values, BINS) / some for values in (confidence, right))
    return counts / max(1, len(right)), means, shares


def expected_calibration_error(confidence: Array, right: Mask) -> float:
    """Return by how much answers' scores (N,) and the share of right ones differ, weighted over the bins; 0 to 1."""
    weight, mean, accuracy = by_confidence(confidence, right)
    return float((weight * np.abs(accuracy - mean)).sum())


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


def calibrate(
    logits: NDArray[np.floating], truth: NDArray[np.int64], fitted_on: str, tests: Mapping[str, Judge]
) -> Calibration | None:
    """Fit a temperature on logits (N, labels) of validation data and tell what it does to test data.

    None where the validation data cannot tell one: where they are few, or without a mistake.
    """
    if len(truth) < LEAST_FITTED or (logits.argmax(-1) == truth).all():
        return None
    return _calibration(fit_temperature(logits, truth), fitted_on, len(truth), tests)


def calibrate_scores(validation: Judge, fitted_on: str, tests: Mapping[str, Judge]) -> Calibration | None:
    """Fit a temperature on scores of validation answers, which are right or not, and tell what it does to test data.

    For answers that no single softmax scores. The temperature is the likeliest one (logistic loss), found by golden
    section on its logarithm; none where `calibrate` has none.
    """
    _, right = validation(1.0)
    if len(right) < LEAST_FITTED or right.all() or not right.any():
        return None

    def loss(logarithm: float) -> float:
        scores, right = validation(math.exp(logarithm))
        confidence = np.clip(scores, 1e-12, 1 - 1e-12)
        return -float(np.log(np.where(right, confidence, 1 - confidence)).mean())

    low, high = math.log(LOWEST), math.log(HIGHEST)
    while high - low > 1e-3:
        left, other = high - (high - low) / GOLDEN, low + (high - low) / GOLDEN
        low, high = (low, other) if loss(left) < loss(other) else (left, high)
    return _calibration(math.exp((low + high) / 2), fitted_on, len(right), tests)


def _calibration(temperature: float, fitted_on: str, rows: int, tests: Mapping[str, Judge]) -> Calibration:
    errors = []
    for dataset, judge in tests.items():
        before, after = (round(expected_calibration_error(*judge(each)), 4) for each in (1.0, temperature))
        errors.append(CalibrationError(dataset=dataset, before=before, after=after))
    return Calibration(temperature=round(temperature, 4), fitted_on=fitted_on, rows=rows, errors=errors)


def check_drawing() -> None:
    """Import what draws a diagram: better missing now than after minutes; raises `ModuleNotFoundError`."""
    import_module("matplotlib")


def reliability(tests: Mapping[str, Judge], temperature: float) -> bytes:
    """Return the reliability diagram of test data, before and over the temperature, as PNG."""
    ways = {"before": 1.0} | ({f"over {temperature:.2f}": temperature} if temperature != 1.0 else {})
    return draw_reliability(
        {dataset: {way: by_confidence(*judge(each)) for way, each in ways.items()} for dataset, judge in tests.items()}
    )


def draw_reliability(curves: Mapping[str, Mapping[str, Curve]]) -> bytes:
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
