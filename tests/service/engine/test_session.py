from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from model.package import exact_sums
from model.package.heap import trim_heap
from model.package.inputs import encoder_inputs
from model.package.processor import sums_up_in_16_bits
from service.engine.providers import CPU, CUDA, DeviceUnavailable
from service.engine.session import Session, SessionOptions
from service.machine import usable_cores
from tests.conftest import MakePackage, TinyPackage
from tests.service.engine.native.products import product
from tests.service.engine.test_memory import resident_bytes


def test_threads_do_not_exceed_the_cores_of_this_process() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))


def test_a_session_returns_the_outputs_asked_for(sentiment: TinyPackage) -> None:
    session = Session(sentiment.folder / "encoder.onnx", SessionOptions(threads=1))
    ids = np.array([[2, 40, 3]])
    (logits,) = session.run(encoder_inputs(ids, np.array([3]), np.zeros_like(ids)), ["logits"])

    assert logits.shape == (1, 2)


@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
@pytest.mark.parametrize("by_rows", [False, True], ids=["a constant scale", "a scale a row"])
def test_who_asks_for_exact_sums_where_they_are_exact_is_answered_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_rows: bool, transposed: bool
) -> None:
    path = product(tmp_path / "product.onnx", 70, 33, by_rows=by_rows, bias=True, transposed=transposed)
    inputs = {"x": np.random.default_rng(0).standard_normal((2, 3, 70), np.float32)}
    answers = []
    for asks in (False, True):
        monkeypatch.setattr(exact_sums, "sums_up_in_16_bits", partial(bool, asks))
        answers.append(Session(path, SessionOptions(1, native=False)).run(inputs, ["y"])[0])

    if not sums_up_in_16_bits():  # else the first are not exact
        np.testing.assert_array_equal(answers[0], answers[1])


@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
def test_who_asks_for_exact_sums_may_have_products_that_share_a_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, transposed: bool
) -> None:
    path = product(tmp_path / "product.onnx", 70, 33, by_rows=False, bias=False, transposed=transposed)
    model = onnx.load(path)
    (node,) = (node for node in model.graph.node if node.op_type == "MatMulIntegerToFloat")
    again = model.graph.node.add()
    again.CopyFrom(node)
    again.output[0] = "z"
    model.graph.output.add().CopyFrom(model.graph.output[0])
    model.graph.output[1].name = "z"
    onnx.save(model, path)
    inputs = {"x": np.random.default_rng(0).standard_normal((2, 3, 70), np.float32) / 8}
    (expected,) = Session(path, SessionOptions(1, native=False)).run(inputs, ["y"])
    monkeypatch.setattr(exact_sums, "sums_up_in_16_bits", lambda: True)

    for content in (None, path.read_bytes()):
        for answer in Session(path, SessionOptions(1, native=False), content).run(inputs, ["y", "z"]):
            np.testing.assert_allclose(answer, expected, rtol=1e-5)


@pytest.mark.parametrize("native", [False, True], ids=["the runtime's operators", "ours, where they can be had"])
def test_sums_of_8_bit_products_are_exact_on_every_processor(tmp_path: Path, native: bool) -> None:
    path = product(tmp_path / "product.onnx", 64, 32, by_rows=False, bias=False)
    model = onnx.load(path)
    weights = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.full((64, 32), 127, np.int8), "matrix"))
    onnx.save(model, path)
    loudest = np.full((1, 3, 64), 1000, np.float32)  # 255 in 8 bits: two products of it with 127 exceed 16 bits
    (answer,) = Session(path, SessionOptions(1, native=native)).run({"x": loudest}, ["y"])

    sums = (255 - int(weights["zero_point"])) * 127 * 64
    np.testing.assert_allclose(answer[0], np.tile(sums * weights["step"] * weights["scales"], (3, 1)), rtol=1e-6)


def test_memory_stays_flat_over_many_shapes(sentiment: TinyPackage) -> None:
    session = Session(sentiment.folder / "encoder.onnx", SessionOptions(threads=1))

    def run(rows: int, length: int) -> None:
        ids = np.ones((rows, length), np.int64)
        session.run(encoder_inputs(ids, np.full(rows, length), np.zeros_like(ids)), ["logits"])

    run(16, 64)
    before = resident_bytes()
    for rows in range(1, 17):
        for length in range(1, 65, 3):
            run(rows, length)
    assert resident_bytes() - before < 64 * 2**20


def test_what_a_burst_of_the_largest_batches_took_is_given_back(make_package: MakePackage) -> None:
    session = Session(make_package("sentiment").folder / "encoder.onnx", SessionOptions(threads=1))

    def run(rows: int, length: int) -> None:
        ids = np.ones((rows, length), np.int64)
        session.run(encoder_inputs(ids, np.full(rows, length), np.zeros_like(ids)), ["logits"])

    def burst() -> tuple[int, int]:
        """Return how many bytes a burst took, and how many of them are left."""
        run(1, 2)
        trim_heap()
        before = resident_bytes()
        for rows in (512, 1024, 800):
            run(rows, 64)
        taken = resident_bytes() - before
        with session.shrinking():
            run(1, 2)
        trim_heap()
        return taken, resident_bytes() - before

    # The rest of what the process does counts too, so one of three is enough; what is kept is not taken a second time.
    bursts = [burst() for _ in range(3)]
    assert any(taken > 2**24 and left < taken / 4 for taken, left in bursts), bursts


no_gpu = pytest.mark.skipif(CUDA in onnxruntime.get_available_providers(), reason="there is a GPU's provider here")


@no_gpu
def test_a_gpu_that_is_not_there_is_an_error_and_not_the_cpu(sentiment: TinyPackage) -> None:
    with pytest.raises(DeviceUnavailable, match="num_gpus asks for CUDA"):
        Session(sentiment.folder / "encoder.onnx", SessionOptions(threads=1, cuda=True))


@no_gpu
def test_the_cpu_is_taken_where_it_is_allowed(sentiment: TinyPackage) -> None:
    Session(sentiment.folder / "encoder.onnx", SessionOptions(threads=1, cuda=True, cpu_fallback=True))


def test_a_device_is_asked_for_with_a_bound_on_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [CUDA, CPU])
    cuda, fallback = SessionOptions(cuda=True, gpu_memory_bytes=2**30).providers()

    assert (cuda[0], fallback) == (CUDA, CPU)
    assert dict(cuda[1])["gpu_mem_limit"] == str(2**30)  # type: ignore[arg-type]  # a pair, as the first one is


@pytest.mark.gpu
@pytest.mark.skipif(CUDA not in onnxruntime.get_available_providers(), reason="needs onnxruntime-gpu and a device")
def test_a_graph_answers_on_the_gpu_as_on_the_cpu(sentiment: TinyPackage) -> None:
    ids = np.array([[2, 40, 3]])
    inputs = encoder_inputs(ids, np.array([3]), np.zeros_like(ids))
    on_cpu, on_gpu = (
        Session(sentiment.folder / "encoder.onnx", SessionOptions(threads=1, cuda=cuda)).run(inputs, ["logits"])[0]
        for cuda in (False, True)
    )

    np.testing.assert_allclose(on_gpu, on_cpu, atol=1e-3)
