"""Confidence held against how often answers are right, by hand and by construction."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from model.evaluation.calibration import (
    HIGHEST,
    LEAST_FITTED,
    LOWEST,
    by_confidence,
    calibrate_scores,
    draw_reliability,
    expected_calibration_error,
    fit_temperature,
    judged,
    probabilities,
)


def error(scores: np.ndarray, truth: list[int]) -> float:
    return expected_calibration_error(*judged(scores, np.array(truth)))


def test_the_error_worked_by_hand() -> None:
    # Two answers at 0.9, one of them right, in one bin: 0.4 apart. Two at 0.6, both right, in another: 0.4 apart.
    scores = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]])
    assert error(scores, [0, 1, 1, 1]) == pytest.approx(0.4)
    # Three right of four at 0.75 are as many as they say.
    honest = np.tile([0.75, 0.25], (4, 1))
    assert error(honest, [0, 0, 0, 1]) == pytest.approx(0)
    # Two bins with different weights: 0.1 * 0.9 of one in four, 0 of the others.
    mixed = np.array([[0.9, 0.1], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    assert error(mixed, [0, 0, 0, 0]) == pytest.approx(0.1 / 4)


def test_fifteen_bins_hold_every_answer() -> None:
    rng = np.random.default_rng(0)
    scores = probabilities(rng.normal(size=(500, 3)) * 4)
    truth = rng.integers(0, 3, 500)

    weight, confidence, accuracy = by_confidence(*judged(scores, truth))

    assert len(weight) == 15 and weight.sum() == pytest.approx(1)
    assert (weight * confidence).sum() == pytest.approx(scores.max(-1).mean())
    assert (weight * accuracy).sum() == pytest.approx((scores.argmax(-1) == truth).mean())
    edges = np.arange(16) / 15
    assert all((edges[i] <= confidence[i] <= edges[i + 1]) for i in range(15) if weight[i])


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_the_temperature_that_made_labels_is_found_again(temperature: float) -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(20_000, 4)) * 3
    truth = (probabilities(logits, temperature).cumsum(-1) > rng.random((20_000, 1))).argmax(-1)

    found = fit_temperature(logits.astype(np.float32), truth)

    assert found == pytest.approx(temperature, rel=0.05)
    after = probabilities(logits, found)
    assert expected_calibration_error(*judged(after, truth)) < 0.02
    assert np.array_equal(after.argmax(-1), logits.argmax(-1))  # no label is another


def test_the_temperature_is_where_the_true_labels_are_likeliest() -> None:
    rng = np.random.default_rng(2)
    logits, truth = rng.normal(size=(300, 3)), rng.integers(0, 3, 300)
    logits[np.arange(300), truth] += 1

    def loss(temperature: float) -> float:
        return float(torch.nn.functional.cross_entropy(torch.tensor(logits / temperature), torch.tensor(truth)))

    found = fit_temperature(logits, truth)
    assert loss(found) <= min(loss(found * 0.98), loss(found * 1.02))


def test_scores_of_no_single_softmax_have_a_temperature_too() -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(5000, 2)) * 2
    right = rng.random(5000) < probabilities(logits, 0.5).max(-1) ** 2  # two choices, as a span's, of scores too low

    def judge(temperature: float) -> tuple[np.ndarray, np.ndarray]:
        return probabilities(logits, temperature).max(-1) ** 2, right

    found = calibrate_scores(judge, "set/validation", {"set/test": judge})
    assert found is not None and found.temperature == pytest.approx(0.5, rel=0.05)
    (error,) = found.errors
    assert found.rows == 5000 and error.after < 0.03 and error.before > 0.05

    few = slice(0, LEAST_FITTED - 1)
    assert calibrate_scores(lambda each: (judge(each)[0][few], right[few]), "few", {}) is None
    assert calibrate_scores(lambda each: (judge(each)[0], np.ones(5000, bool)), "no mistake", {}) is None


def test_without_a_mistake_the_temperature_stays_a_number() -> None:
    sure = np.array([[9.0, 0.0], [0.0, 9.0]])

    assert LOWEST <= fit_temperature(sure, np.array([0, 1])) < 1
    assert fit_temperature(sure, np.array([1, 0])) == pytest.approx(HIGHEST)


def test_the_diagram_is_a_small_picture() -> None:
    curve = by_confidence(np.array([0.9, 0.6]), np.array([True, False]))
    content = draw_reliability({"one": {"before": curve}, "two": {"before": curve}})

    assert content.startswith(b"\x89PNG") and len(content) < 60_000
