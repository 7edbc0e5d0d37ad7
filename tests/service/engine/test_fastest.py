from __future__ import annotations

import asyncio
import logging
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from model.export.precisions import write_graphs
from model.package.inputs import encoder_inputs
from model.package.manifest import Precision
from service.engine import fastest
from service.engine.arrays import Array
from service.engine.batcher import Batcher
from service.engine.fastest import GAIN, MAX_DISTANCE, Comparison, compare, fastest_session
from service.engine.inputs import ImageInput, OneShotInput
from service.engine.providers import has_openvino
from service.engine.session import Session, SessionOptions
from service.engine.standard_graph import standard_graph
from tests.conftest import TINY, MakePackage, TinyPackage, random_model
from tests.service.engine.test_batcher import item, run

ONE = SessionOptions(threads=1)
needs_openvino = pytest.mark.skipif(
    not has_openvino(), reason="OpenVINO's plugin for ONNX Runtime is not installed, or does not take this processor"
)


def batches(*shapes: tuple[int, int]) -> list[dict[str, Array]]:
    rng = np.random.default_rng(0)
    found = []
    for rows, tokens in shapes:
        ids = rng.integers(5, 100, (rows, tokens))
        found.append(encoder_inputs(ids, np.full(rows, tokens), np.zeros_like(ids)))
    return found


def graph_of(folder: Path, seed: int, precision: Precision = "float32") -> Path:
    folder.mkdir()
    return write_graphs(random_model(TINY["sentiment"], seed), folder, precision)["encoder"].path


def by_onnx_runtime(path: Path, options: SessionOptions) -> Session:
    """Stand in for OpenVINO: its graph, in the runtime that is always there."""
    return Session(path, options, standard_graph(path))


def test_a_graph_beside_itself_is_as_near_as_can_be(tmp_path: Path) -> None:
    path = graph_of(tmp_path / "one", 0)
    found = compare(Session(path, ONE), Session(path, ONE), batches((1, 16), (8, 32)), ["logits"])

    assert found.distance == 0
    assert found.speed > 0


def test_a_graph_with_other_answers_is_not_taken_however_fast_it_is(tmp_path: Path) -> None:
    one, other = (Session(graph_of(tmp_path / str(seed), seed), ONE) for seed in (0, 1))
    found = compare(one, other, batches((1, 16), (8, 32)), ["logits"])

    assert found.distance > MAX_DISTANCE
    assert not replace(found, speed=100.0).is_better(GAIN, MAX_DISTANCE)


def test_a_graph_that_answers_one_batch_with_no_number_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = graph_of(tmp_path / "one", 0)
    one, other = Session(path, ONE), Session(path, ONE)
    run = other.run

    def broken(batch: dict[str, Array], outputs: list[str]) -> list[Array]:
        return [answer * (math.nan if len(batch["input_ids"]) == 8 else 1) for answer in run(batch, outputs)]

    monkeypatch.setattr(other, "run", broken)
    found = compare(one, other, batches((1, 16), (8, 32)), ["logits"])

    assert not replace(found, speed=9.0).is_better(GAIN, MAX_DISTANCE)


def test_a_gain_within_what_measuring_errs_by_is_none() -> None:
    assert not Comparison(speed=(1 + GAIN) / 2, distance=0).is_better(GAIN, MAX_DISTANCE)
    assert Comparison(speed=GAIN, distance=MAX_DISTANCE).is_better(GAIN, MAX_DISTANCE)


@pytest.mark.parametrize("is_faster", [True, False])
def test_the_faster_graph_runs_and_the_log_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_faster: bool
) -> None:
    caplog.set_level(logging.INFO)
    path = graph_of(tmp_path / "one", 0, "int8")
    monkeypatch.setattr(fastest, "has_openvino", lambda: True)
    monkeypatch.setattr(fastest, "_by_openvino", by_onnx_runtime)
    monkeypatch.setattr(fastest, "GAIN", 0.0 if is_faster else math.inf)
    (batch,) = batches((4, 16))
    session = fastest_session(path, ONE, [batch], ["logits"], "reviews")
    expected = by_onnx_runtime(path, ONE) if is_faster else Session(path, ONE)

    found, wanted = (each.run(batch, ["logits"])[0] for each in (session, expected))
    np.testing.assert_array_equal(found, wanted)
    assert "reviews: OpenVINO is" in caplog.text
    assert caplog.text.rstrip().endswith("it runs" if is_faster else "the package's own graph runs")


def test_a_graph_that_openvino_cannot_take_is_served_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = graph_of(tmp_path / "one", 0, "int8-blocks")
    monkeypatch.setattr(fastest, "has_openvino", lambda: True)
    monkeypatch.setattr(fastest, "_by_openvino", by_onnx_runtime)
    session = fastest_session(path, ONE, batches((4, 16)), ["logits"], "reviews")

    assert session.provider == "cpu"
    assert "MatMulNBits has no standard form" in caplog.text


@pytest.mark.parametrize("name", ["sentiment", "fashion", "encoder"])
async def test_without_the_plugin_a_model_that_need_not_be_exact_is_as_exact(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(fastest, "has_openvino", lambda: False)
    package = make_package(name)
    batcher = Batcher(package.folder, package.manifest, ONE, exact=False)
    await batcher.close()

    assert batcher.provider == "cpu"
    assert "so the package's own graph runs" in caplog.text


@needs_openvino
@pytest.mark.parametrize("name", ["sentiment", "embed", "entities", "fashion"])
async def test_openvino_answers_as_onnx_runtime_does(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(fastest, "GAIN", 0.0)
    package = make_package(name)
    shape = 1, 28, 28
    rng = np.random.default_rng(0)
    inputs: list[OneShotInput] = [item(length) for length in (3, 9, 20)]
    if name == "fashion":
        inputs = [ImageInput(rng.standard_normal(shape, np.float32), tokens=17) for _ in range(3)]
    answers = []
    for exact in (True, False):
        batcher = Batcher(package.folder, package.manifest, ONE, exact=exact)
        answers.append(await run(batcher, *inputs))
        await batcher.close()

    assert batcher.provider == "openvino"
    for given, one, other in zip(inputs, *answers, strict=True):
        real = slice(given.tokens if name == "entities" else None)
        np.testing.assert_allclose(other[real], one[real], atol=MAX_DISTANCE / 2 * np.abs(one).max())


@needs_openvino
async def test_both_lanes_of_a_batcher_run_in_openvino_at_a_time(
    sentiment: TinyPackage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastest, "GAIN", 0.0)
    batcher = Batcher(sentiment.folder, sentiment.manifest, ONE, batch_tokens=64, exact=False)
    alone = (await run(batcher, item(20)))[0]
    several = await asyncio.gather(*(run(batcher, *[item(20)] * count) for count in (1, 9) * 20))
    await batcher.close()

    for answer in (row for rows in several for row in rows):
        np.testing.assert_allclose(answer, alone, atol=0.05 * np.abs(alone).max())
