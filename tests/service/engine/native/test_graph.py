"""Products of our own operator are those of ONNX Runtime's, to the last bit."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from model.package.inputs import encoder_inputs
from model.package.manifest import Precision
from service.engine import session as sessions
from service.engine import teams
from service.engine.engine import Engine
from service.engine.native.graph import aligned, native_graph, panels_of
from service.engine.sampling import SamplingParams
from service.engine.scheduler import SchedulerLimits
from service.engine.session import Array, Session, SessionOptions
from tests.conftest import MakePackage, TinyPackage
from tests.service.engine.native.machine import needs_instructions
from tests.service.engine.test_teams import run_until, teams_of

DEPTHS_AND_COLUMNS = [(1, 1), (3, 31), (16, 32), (33, 70), (64, 33), (250, 100), (768, 257), (3072, 64)]
ROWS = [1, 2, 3, 7, 11, 12, 13, 23, 24, 25, 48, 61, 200]


def product(path: Path, depth: int, columns: int, *, by_rows: bool, bias: bool, transposed: bool = False) -> Path:
    """Write a graph of one product as the exporter does: of rows whose scales are found, or of a constant scale."""
    rng = np.random.default_rng([depth, columns])
    matrix = rng.integers(-127, 128, (columns, depth) if transposed else (depth, columns)).astype(np.int8)
    weights: dict[str, Array] = {
        "matrix": matrix,
        "scales": rng.uniform(0.001, 0.01, columns).astype(np.float32),
        "bias": rng.standard_normal(columns).astype(np.float32),
        "step": np.array(1 / 127 if by_rows else 0.02, np.float32),
        "zero_point": np.array(128 if by_rows else 117, np.uint8),
        "last_axis": np.array([-1]),
    }
    nodes, name = [], "matrix"
    if transposed:
        nodes.append(helper.make_node("Transpose", [name], [name := "turned"], perm=[1, 0]))
    if by_rows:
        nodes += [
            helper.make_node("Abs", ["x"], ["size"]),
            helper.make_node("ReduceMax", ["size", "last_axis"], ["largest"], keepdims=1),
            helper.make_node("Div", ["x", "largest"], ["scaled"]),
        ]
    nodes.append(helper.make_node("QuantizeLinear", ["scaled" if by_rows else "x", "step", "zero_point"], ["rounded"]))
    inputs = ["rounded", name, "step", "scales", "zero_point"]
    if by_rows:
        last = "product" if bias else "y"
        nodes.append(helper.make_node("MatMulIntegerToFloat", inputs, ["by_rows"], domain="com.microsoft"))
        nodes.append(helper.make_node("Mul", ["by_rows", "largest"], [last]))
        if bias:
            nodes.append(helper.make_node("Add", ["product", "bias"], ["y"]))
    else:
        inputs += ["", "bias"] if bias else []
        nodes.append(helper.make_node("MatMulIntegerToFloat", inputs, ["y"], domain="com.microsoft"))
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", "tokens", depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "tokens", columns])],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def operators(path: Path) -> list[str]:
    """Return the operators of a graph as it runs."""
    graph = native_graph(path)
    assert graph is not None
    return [node.op_type for node in onnx.load_from_string(graph.model).graph.node]


def both(path: Path, threads: int = 1) -> tuple[Session, Session]:
    own, plain = (Session(path, SessionOptions(threads, native=native)) for native in (True, False))
    assert own._native is not None and plain._native is None
    return own, plain


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
            np.testing.assert_array_equal(own.run({"x": x}, ["y"])[0], plain.run({"x": x}, ["y"])[0])


@needs_instructions
@pytest.mark.parametrize("by_rows", [False, True], ids=["a constant scale", "a scale a row"])
def test_zeros_halves_and_numbers_beyond_the_range_are_rounded_alike(tmp_path: Path, by_rows: bool) -> None:
    own, plain = both(product(tmp_path / "product.onnx", 40, 48, by_rows=by_rows, bias=True))
    halves = (np.arange(40, dtype=np.float32) - 20.5) * np.float32(0.02)
    x = np.stack([np.zeros(40), -np.zeros(40), halves, 1e30 * halves, np.full(40, -1e-30), np.eye(40)[3] * 5])
    inputs = {"x": x[:, None].astype(np.float32)}

    np.testing.assert_array_equal(own.run(inputs, ["y"])[0], plain.run(inputs, ["y"])[0])


@needs_instructions
def test_no_rows_are_a_product_without_rows(tmp_path: Path) -> None:
    own, _ = both(product(tmp_path / "product.onnx", 40, 48, by_rows=True, bias=True))

    assert own.run({"x": np.empty((2, 0, 40), np.float32)}, ["y"])[0].shape == (2, 0, 48)


@needs_instructions
def test_weights_may_lie_beside_the_graph(tmp_path: Path) -> None:
    path = product(tmp_path / "product.onnx", 70, 90, by_rows=True, bias=True)
    x = np.random.default_rng(0).standard_normal((2, 3, 70), np.float32)
    (expected,) = Session(path, SessionOptions(1)).run({"x": x}, ["y"])
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="product.onnx.data", size_threshold=0)

    np.testing.assert_array_equal(Session(path, SessionOptions(1)).run({"x": x}, ["y"])[0], expected)


@needs_instructions
def test_a_vocabulary_that_lies_by_words_is_multiplied_by_columns(tmp_path: Path) -> None:
    path = product(tmp_path / "product.onnx", 24, 99, by_rows=True, bias=False, transposed=True)
    own, plain = both(path)
    x = np.random.default_rng(0).standard_normal((2, 3, 24), np.float32)

    assert operators(path) == ["Linear"]
    np.testing.assert_array_equal(own.run({"x": x}, ["y"])[0], plain.run({"x": x}, ["y"])[0])


def test_every_number_of_a_matrix_lies_where_it_is_read() -> None:
    matrix = np.random.default_rng(0).integers(-127, 128, (10, 70)).astype(np.int8)
    panels = panels_of(matrix)

    assert panels.shape == (3, 3, 32, 4)
    for row, column in np.ndindex(12, 96):
        expected = matrix[row, column] if row < 10 and column < 70 else 0
        assert panels[column // 32, row // 4, column % 32, row % 4] == expected


def test_memory_begins_with_a_cache_line() -> None:
    assert all(aligned((size,), np.float32).ctypes.data % 64 == 0 for size in range(1, 50))


def test_a_graph_without_products_of_integers_stays_as_it_is(make_package: MakePackage) -> None:
    precisions: list[Precision] = ["float32", "int8-blocks"]
    for precision in precisions:
        assert native_graph(make_package("sentiment", precision).folder / "encoder.onnx") is None


@pytest.mark.parametrize(
    "change", ["a zero point of the matrix", "activations rounded to signed numbers", "no constants"]
)
def test_a_product_of_another_form_is_left_to_onnx_runtime(tmp_path: Path, change: str) -> None:
    path = product(tmp_path / "product.onnx", 8, 8, by_rows=False, bias=False)
    model = onnx.load(path)
    graph = model.graph
    if change == "a zero point of the matrix":
        graph.node[1].input.extend(["matrix_zero_point"])
        graph.initializer.append(numpy_helper.from_array(np.zeros(8, np.int8), "matrix_zero_point"))
    elif change == "activations rounded to signed numbers":
        (zero_point,) = [each for each in graph.initializer if each.name == "zero_point"]
        zero_point.CopyFrom(numpy_helper.from_array(np.array(0, np.int8), "zero_point"))
    else:
        graph.input.append(helper.make_tensor_value_info("matrix", TensorProto.INT8, [8, 8]))
        del graph.initializer[0]
    onnx.save(model, path)

    assert native_graph(path) is None


@needs_instructions
@pytest.mark.parametrize(
    ("name", "precision"),
    [*itertools.product(["sentiment", "embed", "entities"], ["int8", "int8-static"]), ("fashion", "int8")],
)
def test_a_packages_encoder_answers_the_same_to_the_last_bit(
    make_package: MakePackage, name: str, precision: Precision
) -> None:
    package = make_package(name, precision)
    graph = package.manifest.graphs["encoder"]
    own, plain = both(package.folder / graph.file)
    assert "MatMulIntegerToFloat" not in operators(package.folder / graph.file)
    rng = np.random.default_rng(0)
    for rows, tokens in [(1, 2), (3, 17), (16, 40)]:
        if package.manifest.image is not None:
            inputs = {"pixels": rng.random((rows, 1, 28, 28), np.float32)}
        else:
            ids = rng.integers(5, package.manifest.vocab_size, (rows, tokens))
            given = encoder_inputs(ids, rng.integers(1, tokens + 1, rows), np.zeros_like(ids))
            inputs = {name: given[name] for name in graph.inputs}
        for one, other in zip(own.run(inputs, graph.outputs), plain.run(inputs, graph.outputs), strict=True):
            np.testing.assert_array_equal(one, other)


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
async def test_what_is_generated_is_the_same_to_the_last_bit(
    make_package: MakePackage, name: str, precision: Precision
) -> None:
    package = make_package(name, precision)
    assert "MatMulIntegerToFloat" not in operators(package.folder / "decoder.onnx")

    assert await generated(package, native=True) == await generated(package, native=False)


@needs_instructions
def test_sessions_for_other_numbers_of_threads_share_the_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "usable_cores", lambda: 4)
    monkeypatch.setattr(teams, "FIRST_S", 0.002)
    session = Session(product(tmp_path / "product.onnx", 64, 64, by_rows=True, bias=True), SessionOptions())
    x = np.ones((1, 4, 64), np.float32)
    run_until(lambda: len(teams_of(session)) > 1, lambda: session.run({"x": x}, ["y"]))

    assert session._teams.held_again == 0
