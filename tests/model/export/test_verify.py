from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from model.card import Card
from model.config import AttentionConfig
from model.export import verify as verifying
from model.export.export import export_package
from model.export.naive import open_graphs
from model.export.precisions import write_graphs
from model.export.samples import COMPARED, SENTENCES
from model.export.verify import Rows, verify
from model.layers.block import FeedForward
from model.package import PackageError
from tests.conftest import TINY, MakePackage, random_model

CARD = Card(name="tiny", task="classify", description="", licence="", training_data=(), labels=("no", "yes"))


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_a_model_that_answers_with_nan_or_infinity_is_refused(tmp_path: Path, broken: float) -> None:
    model = random_model(TINY["sentiment"])
    graphs = open_graphs(write_graphs(model, tmp_path))
    with torch.no_grad():
        next(model.parameters())[:] = broken

    with pytest.raises(PackageError, match="the model answers with NaN or infinity"):
        verify(model, graphs, batches=1)


def test_a_graph_that_answers_with_nan_is_refused(tmp_path: Path) -> None:
    model = random_model(TINY["sentiment"])
    broken = random_model(TINY["sentiment"])
    with torch.no_grad():
        dict(broken.named_parameters())["head.output.bias"][0] = float("nan")

    with pytest.raises(PackageError, match="the graph answers with NaN or infinity"):
        verify(model, open_graphs(write_graphs(broken, tmp_path)), batches=1)


def test_halves_that_overflow_are_refused(tmp_path: Path) -> None:
    model = random_model(TINY["sentiment"])
    with torch.no_grad():
        dict(model.named_parameters())["head.output.weight"].mul_(1e6)

    assert verify(model, open_graphs(write_graphs(model, tmp_path)), batches=1).max_relative_error < 1e-4
    with pytest.raises(PackageError, match="too large for this precision; export it in another"):
        verify(model, open_graphs(write_graphs(model, tmp_path, "float16")), batches=1)


def test_what_is_shipped_is_measured_on_texts_and_stands_in_the_manifest(make_package: MakePackage) -> None:
    exact, shipped = (make_package("stories", precision).manifest.verification for precision in ("float32", "int8"))

    assert exact.distance is not None and exact.distance < 1e-5
    assert shipped.distance is not None and 1e-3 < shipped.distance < 0.1
    assert shipped.max_relative_error == exact.max_relative_error  # that of the float32 graphs


def test_a_precision_that_a_model_does_not_bear_is_refused(
    make_package: MakePackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = make_package("fashion")
    monkeypatch.setitem(verifying.LIMITS, "int4-blocks", 0.01)
    card = replace(CARD, labels=tuple(package.manifest.labels), image=package.manifest.image)

    with pytest.raises(
        PackageError, match=r"tiny: its answers in int4-blocks are 0\.\d+ from .* limit is 0\.01; export"
    ):
        export_package(package.model, None, card, tmp_path, precision="int4-blocks")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_answers_are_compared_token_by_token_and_not_their_two_logits(tmp_path: Path, noise: float) -> None:
    model = random_model(TINY["answers"])
    graphs = open_graphs(write_graphs(model, tmp_path))
    rng = np.random.default_rng(1)

    class Shifted:
        """A graph whose two logits of each token are as far apart as they should be."""

        def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
            logits = graphs["encoder"].run(inputs)["logits"]
            return {"logits": logits + noise * rng.standard_normal((*logits.shape[:2], 1)).astype(np.float32)}

    report = verify(model, cast("Any", {"encoder": Shifted()}), batches=4)
    assert report.distance < 1e-4 if not noise else report.distance > 0.2


@pytest.mark.parametrize("name", ["sentiment", "stories", "translate"])
def test_a_graph_without_the_models_window_is_noticed(name: str, tmp_path: Path) -> None:
    own = random_model(replace(TINY[name], attention=AttentionConfig(4, window=24, local_layers=(0, 1))))
    other = random_model(replace(TINY[name], attention=AttentionConfig(4)))
    other.load_state_dict(own.state_dict())

    assert verify(own, open_graphs(write_graphs(other, tmp_path)), batches=1).max_relative_error > 1e-3


def test_a_feature_that_drowns_all_others_is_noticed(tmp_path: Path) -> None:
    model = random_model(TINY["sentiment"])
    for part in model.modules():
        if isinstance(part, FeedForward):
            with torch.no_grad():
                part.expand.weight[0] *= 3000
                part.contract.weight *= 20
                part.contract.weight[:, 0] /= 60000

    report = verify(model, open_graphs(write_graphs(model, tmp_path, "int8")), batches=2)
    assert report.distance > verifying.LIMITS["int8"]


def test_rows_are_sentences_where_there_is_a_tokenizer(make_package: MakePackage) -> None:
    package = make_package("stories")
    tokenizer = package.tokenizer
    rows = Rows.of(package.model, tokenizer._tokenizer)

    assert len(rows.texts) == len(COMPARED)
    assert tokenizer.decode(rows.texts[4]).strip() == COMPARED[4]
    assert not set(COMPARED) & set(SENTENCES)  # by which constant scales are found
    assert not Rows.of(package.model, None).texts


def test_rows_are_no_longer_than_their_sentences(make_package: MakePackage) -> None:
    package = make_package("stories")
    tokenizer = package.training_tokenizer
    expected = Rows.of(package.model, tokenizer).texts
    tokenizer.enable_padding(length=128)
    tokenizer.enable_truncation(5)

    assert Rows.of(package.model, tokenizer).texts == expected


@pytest.mark.parametrize("name", ["stories", "sentiment"])
def test_a_window_is_looked_behind(name: str, tmp_path: Path) -> None:
    attention = replace(TINY[name].attention, window=45, local_layers=(0,))  # longer than a text of the others
    model = random_model(replace(TINY[name], attention=attention))
    forgot = random_model(TINY[name])
    forgot.load_state_dict(model.state_dict())

    assert verify(model, open_graphs(write_graphs(model, tmp_path)), batches=1).distance < 1e-5
    assert verify(model, open_graphs(write_graphs(forgot, tmp_path)), batches=1).distance > 1e-4


def test_the_score_of_a_single_label_is_compared_as_it_is(tmp_path: Path) -> None:
    model = random_model(TINY["ranker"])

    assert verify(model, open_graphs(write_graphs(model, tmp_path, "int8")), batches=2).distance > 1e-5


@pytest.mark.parametrize(("times", "batches"), [(100, 8), (3, 3), (0, 1)])
def test_a_large_model_is_compared_in_fewer_batches(
    times: int, batches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(TINY["fashion"])
    count = sum(parameter.numel() for parameter in model.parameters())
    monkeypatch.setattr(verifying, "FEW_PARAMETERS", times * count)

    assert verify(model, open_graphs(write_graphs(model, tmp_path))).batches == batches
