"""A classifier's temperature makes its scores honest and changes no label; packages without one are as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import TEXTS, MakePackage, with_manifest
from tests.service.api.conftest import OpenClient, post
from tests.service.api.test_classify import of_texts, scores
from tests.service.api.test_images import encoded, png

TEMPERATURE = 2.5
CALIBRATION = {
    "temperature": TEMPERATURE,
    "fitted_on": "some rows",
    "rows": 9,
    "errors": [{"dataset": "others", "before": 0.2, "after": 0.1}],
}


@pytest.fixture
def warm(make_package: MakePackage, tmp_path: Path) -> Any:
    """Return what makes a copy of a package that has a temperature."""
    return lambda name: with_manifest(make_package(name), tmp_path / f"warm-{name}", calibration=CALIBRATION)


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits.astype(np.float64) - logits.max())
    return np.asarray(weights / weights.sum())


async def test_scores_are_those_of_logits_over_the_temperature(
    open_client: OpenClient, make_package: MakePackage, warm: Any
) -> None:
    package = make_package("sentiment")
    async with open_client("sentiment", warm("sentiment")) as client:
        plain = await post(client, "/classify", model="sentiment", input=TEXTS)
        calibrated = await post(client, "/classify", model="warm-sentiment", input=TEXTS)

    for text, before, after in zip(TEXTS, plain["results"], calibrated["results"], strict=True):
        (logits,) = of_texts(package, (text,))
        labels = package.manifest.labels
        assert scores(before) == pytest.approx(dict(zip(labels, softmax(logits), strict=True)), abs=1e-6)
        assert scores(after) == pytest.approx(dict(zip(labels, softmax(logits / TEMPERATURE), strict=True)), abs=1e-6)
        assert before["labels"][0]["label"] == after["labels"][0]["label"]


@pytest.mark.parametrize("activation", ["none", "sigmoid"])
async def test_numbers_that_are_no_shares_of_one_whole_stay(
    open_client: OpenClient, warm: Any, activation: str
) -> None:
    async with open_client("sentiment", warm("sentiment")) as client:
        answers = [
            await post(client, "/classify", model=model, input=TEXTS, activation=activation)
            for model in ("sentiment", "warm-sentiment")
        ]

    assert answers[0]["results"] == answers[1]["results"]


async def test_images_decisions_and_explanations_have_the_same_scores(open_client: OpenClient, warm: Any) -> None:
    image, folder = encoded(png()), warm("sentiment")
    async with open_client("fashion", warm("fashion")) as client:
        plain, calibrated = [
            (await post(client, "/classify", model=model, input=image))["results"][0]["labels"]
            for model in ("fashion", "warm-fashion")
        ]
    async with open_client(folder) as client:
        labels = (await post(client, "/classify", input=TEXTS[1]))["results"][0]
        explained = (await post(client, "/explain", input=TEXTS[1], attention=False))["contributions"]
        question = {
            "type": "choice",
            "instructions": "It is",
            "choices": [{"value": "negative"}, {"value": "positive"}],
        }
        decided = await post(client, "/v1/decisions", model="warm-sentiment", input=TEXTS[1], questions=[question])

    assert [label["label"] for label in plain] == [label["label"] for label in calibrated]
    assert calibrated[0]["score"] < plain[0]["score"]
    assert {"label": explained["label"], "score": pytest.approx(explained["score"])} == labels["labels"][0]
    assert 1 / (1 + np.exp(-explained["log_odds"])) == pytest.approx(explained["score"], abs=1e-6)
    found = {each["value"]: each["probability"] for each in decided["answers"][0]["probabilities"]}
    assert found == pytest.approx(scores(labels), abs=1e-6)


async def test_labels_of_the_request_know_no_temperature(open_client: OpenClient, warm: Any) -> None:
    async with open_client("entailment", warm("entailment")) as client:
        answers = [
            await post(client, "/classify", model=model, input=TEXTS, labels=["good", "a dog"])
            for model in ("entailment", "warm-entailment")
        ]

    assert answers[0]["results"] == answers[1]["results"]
