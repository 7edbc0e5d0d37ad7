"""Products of our own operator are those of ONNX Runtime's, to the last bit."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from model.export.precisions import write_graphs
from model.package.inputs import encoder_inputs
from model.package.manifest import Precision
from service.engine import runner as runners
from service.engine import session as sessions
from service.engine import teams
from service.engine.arrays import Array
from service.engine.engine import Engine
from service.engine.native import graph as native_graphs
from service.engine.native.graph import aligned, native_graph, panels_of
from service.engine.passes import NUMPY
from service.engine.sampling_params import SamplingParams
from service.engine.scheduler import SchedulerLimits
from service.engine.session import Session, SessionOptions
from tests.conftest import MakePackage, TinyPackage, random_model
from tests.model.export.test_families import FAMILIES
from tests.service.engine.native.machine import needs_instructions
from tests.service.engine.native.products import assert_same, both, operators, product
from tests.service.engine.test_teams import run_until, teams_of

DEPTHS_AND_COLUMNS = [(1, 1), (3, 31), (16, 32), (33, 70), (64, 33), (250, 100), (768, 257), (3072, 64)]
ROWS = [1, 2, 3, 7, 11, 12, 13, 23, 24, 25, 48, 61, 200]


@needs_instructions
@pytest.mark.parametrize("by_rows", [False, True], ids=["a constant scale", "a scale a row"])
@pytest.mark.parametrize("bias", [False, True], ids=["", "with a bias"])
@pytest.mark.parametrize(("depth", "columns"), DEPTHS_AND_COLUMNS)
def test_a_product_is_the_same_to_the_last_bit(
    tmp_path: Path, depth: int, columns: int, by_rows: bool, bias: bool
) -> None:
    path = product(tmp_path / "product.onnx", depth, columns, by_rows=by_rows, bias=bias)
    assert operators(path) == ["Linear"]
    rng = np.random.default_rng(0)
    for threads in (1, 3):
        own, plain = both(path, threads)
        for rows in ROWS:
            x = rng.standard_normal((1, rows, depth), np.float32) * rng.choice([0.1, 1, 10], (1, rows, 1)).astype("f")
            assert_same(own.run({"x": x}, ["y"])[0], plain.run({"x": x}, ["y"])[0])


@needs_instructions
@pytest.mark.parametrize("by_rows", [False, True], ids=["a constant scale", "a scale a row"])
def test_zeros_halves_and_numbers_beyond_the_range_are_rounded_alike(tmp_path: Path, by_rows: bool) -> None:
    own, plain = both(product(tmp_path / "product.onnx", 40, 48, by_rows=by_rows, bias=True))
    halves = (np.arange(40, dtype=np.float32) - 20.5) * np.float32(0.02)
    x = np.stack([np.zeros(40), -np.zeros(40), halves, 1e30 * halves, np.full(40, -1e-30), np.eye(40)[3] * 5])
    inputs = {"x": x[:, None].astype(np.float32)}

    assert_same(own.run(inputs, ["y"])[0], plain.run(inputs, ["y"])[0])


@needs_instructions
def test_no_rows_are_a_product_without_rows(tmp_path: Path) -> None:
    own, _ = both(product(tmp_path / "product.onnx", 40, 48, by_rows=True, bias=True))

    assert own.run({"x": np.empty((2, 0, 40), np.float32)}, ["y"])[0].shape == (2, 0, 48)


@needs_instructions
@needs_instructions
def test_rows_of_another_length_are_refused(tmp_path: Path) -> None:
    path = product(tmp_path / "product.onnx", 40, 24, by_rows=False, bias=True)
    model = onnx.load(path)
    model.graph.input[0].type.tensor_type.ClearField("shape")  # by which the runtime would refuse them itself
    onnx.save(model, path)

    with pytest.raises(Exception, match="rows have another length"):
        both(path)[0].run({"x": np.ones((1, 2, 41), np.float32)}, ["y"])


@needs_instructions
def test_constants_of_another_size_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = product(tmp_path / "product.onnx", 40, 24, by_rows=False, bias=True)
    graph = native_graph(path)
    assert graph is not None
    model = onnx.load_from_string(graph.model)
    (depth,) = [attribute for attribute in model.graph.node[0].attribute if attribute.name == "depth"]
    depth.i = 4000
    changed = replace(graph, model=model.SerializeToString())
    monkeypatch.setattr(sessions, "native_graph", lambda *_, **__: changed)

    Session(path, SessionOptions(1))
    assert "a constant has another size" in caplog.text


@needs_instructions
def test_weights_may_lie_beside_the_graph(tmp_path: Path) -> None:
    path = product(tmp_path / "product.onnx", 70, 90, by_rows=True, bias=True)
    x = np.random.default_rng(0).standard_normal((2, 3, 70), np.float32)
    (expected,) = Session(path, SessionOptions(1)).run({"x": x}, ["y"])
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="product.onnx.data", size_threshold=1000)

    np.testing.assert_array_equal(Session(path, SessionOptions(1)).run({"x": x}, ["y"])[0], expected)


@needs_instructions
def test_a_vocabulary_that_lies_by_words_is_multiplied_by_columns(tmp_path: Path) -> None:
    path = product(tmp_path / "product.onnx", 24, 99, by_rows=True, bias=False, transposed=True)
    own, plain = both(path)
    x = np.random.default_rng(0).standard_normal((2, 3, 24), np.float32)

    assert operators(path) == ["Linear"]
    assert_same(own.run({"x": x}, ["y"])[0], plain.run({"x": x}, ["y"])[0])


def test_every_number_of_a_matrix_lies_where_it_is_read() -> None:
    matrix = np.random.default_rng(0).integers(-127, 128, (10, 70)).astype(np.int8)
    panels = panels_of(matrix)

    assert panels.shape == (3, 3, 32, 4)
    for row, column in np.ndindex(12, 96):
        expected = matrix[row, column] if row < 10 and column < 70 else 0
        assert panels[column // 32, row // 4, column % 32, row % 4] == expected


def test_memory_begins_with_a_cache_line() -> None:
    assert all(aligned((size,), np.float32).ctypes.data % 64 == 0 for size in range(1, 50))


ENCODERS = ["sentiment", "embed", "entities", "fashion", "translate", "near"]


def encoded(package: TinyPackage, session: Session, rows: int, tokens: int) -> Iterator[Array]:
    """Yield what an encoder's graph computes; of an output for each token what it has for real ones, 0 for others."""
    graph, rng = package.manifest.graphs["encoder"], np.random.default_rng([rows, tokens])
    if package.manifest.image is not None:
        yield from session.run({"pixels": rng.random((rows, 1, 28, 28), np.float32)}, graph.outputs)
        return
    ids, lengths = rng.integers(5, 60, (rows, tokens)), rng.integers(1, tokens + 1, rows)
    given = encoder_inputs(ids, lengths, np.zeros_like(ids))
    for output in session.run({name: given[name] for name in graph.inputs}, graph.outputs):
        if tokens in output.shape[1:]:
            of_tokens = np.moveaxis(output, output.shape.index(tokens, 1), 1)
            of_tokens[np.arange(tokens) >= lengths[:, None]] = 0
        yield output


@needs_instructions
@pytest.mark.parametrize(
    ("name", "precision"), [*itertools.product(ENCODERS[:3], ["int8", "int8-static"]), ("fashion", "int8")]
)
def test_our_products_answer_as_the_runtimes_to_the_last_bit(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch, name: str, precision: Precision
) -> None:
    monkeypatch.setattr(native_graphs, "own_ragged_attention", lambda *_: None)
    package = make_package(name, precision)
    path = package.folder / package.manifest.graphs["encoder"].file
    own, plain = both(path)
    assert "MatMulIntegerToFloat" not in operators(path)

    for rows, tokens in [(1, 5), (3, 17), (16, 40)]:
        for one, other in zip(encoded(package, own, rows, tokens), encoded(package, plain, rows, tokens), strict=True):
            np.testing.assert_array_equal(one, other)


@needs_instructions
@pytest.mark.parametrize("name", ENCODERS)
def test_our_attention_in_an_encoder_answers_as_the_runtimes_but_for_rounding(
    make_package: MakePackage, name: str
) -> None:
    package = make_package(name, "float32")
    path = package.folder / package.manifest.graphs["encoder"].file
    own, plain = both(path)
    assert "RaggedAttention" in operators(path) and not {"GroupQueryAttention", "Where"} & {*operators(path)}

    for rows, tokens in [(1, 5), (3, 17), (16, 40)]:
        for one, other in zip(encoded(package, own, rows, tokens), encoded(package, plain, rows, tokens), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)


async def generated(package: TinyPackage, native: bool) -> list[list[tuple[int, float | None]]]:
    options, limits = SessionOptions(threads=2, native=native), SchedulerLimits(max_slots=16)
    engine = Engine(package.folder, package.manifest, options, limits)

    async def answer(prompt: list[int]) -> list[tuple[int, float | None]]:
        source = {"source_ids" if package.manifest.task == "translate" else "prompt_ids": prompt}
        params = SamplingParams(max_tokens=20, temperature=0, logprobs=0)
        outputs = [output async for output in engine.generate(params, **source)]
        return [(token.id, token.logprob) for output in outputs for token in output.tokens]

    try:
        return list(await asyncio.gather(*(answer([5, 6, 7, 8, 9][:length]) for length in (1, 3, 5, 2, 4))))
    finally:
        await engine.close()


@needs_instructions
@pytest.mark.parametrize("precision", ["int8", "int8-static"])
@pytest.mark.parametrize("name", ["stories", "translate"])
async def test_what_is_generated_with_our_products_is_the_same_to_the_last_bit(
    make_package: MakePackage, monkeypatch: pytest.MonkeyPatch, name: str, precision: Precision
) -> None:
    for attention in ("own_attention", "own_ragged_attention"):
        monkeypatch.setattr(native_graphs, attention, lambda *_: None)
    monkeypatch.setattr(runners, "fastest_passes", lambda _: NUMPY)  # our own passes round exponentials otherwise
    package = make_package(name, precision)
    assert "MatMulIntegerToFloat" not in operators(package.folder / "decoder.onnx")

    assert await generated(package, native=True) == await generated(package, native=False)


def test_weights_that_stay_in_a_graph_are_read_out_of_its_file_and_counted(make_package: MakePackage) -> None:
    package = make_package("wide_stories")
    path = package.folder / "decoder.onnx"
    weights = sum(numpy_helper.to_array(each).nbytes for each in onnx.load(path).graph.initializer)
    graph = native_graph(path)
    assert graph is not None

    assert len(graph.model) < path.stat().st_size / 4
    assert graph.own_bytes == weights - sum(values.nbytes for values in graph.weights.values())


def test_weights_beside_a_graph_are_counted_too(make_package: MakePackage, tmp_path: Path) -> None:
    path = make_package("wide_stories").folder / "decoder.onnx"
    within = native_graph(path)
    onnx.save(onnx.load(path), tmp_path / "decoder.onnx", save_as_external_data=True, location="decoder.onnx.data")
    beside = native_graph(tmp_path / "decoder.onnx")

    assert within is not None and beside is not None and beside.own_bytes == within.own_bytes


@needs_instructions
def test_sessions_for_other_numbers_of_threads_share_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "usable_cores", lambda: 4)
    monkeypatch.setattr(teams, "FIRST_S", 0.002)
    session = Session(product(tmp_path / "product.onnx", 64, 64, by_rows=True, bias=False), SessionOptions())
    inputs = {"x": np.ones((1, 4, 64), np.float32)}
    run_until(lambda: len(teams_of(session)) > 1, lambda: session.run(inputs, ["y"]))
    assert session._native is not None
    session._native.weights["y_scales_of_panels"][...] = 0

    assert all(not team.run(["y"], inputs)[0].any() for team in session._teams._teams.values())


@needs_instructions
@pytest.mark.parametrize(("name", "graph"), [("bloom", "decoder"), ("jina embeddings, to fill", "encoder")])
def test_no_bias_is_made_of_distances_that_our_attention_knows(name: str, graph: str, tmp_path: Path) -> None:
    graphs = write_graphs(random_model(FAMILIES[name]), tmp_path, "int8")

    assert {"Abs", "GroupQueryAttention"}.isdisjoint(operators(graphs[graph].path))
