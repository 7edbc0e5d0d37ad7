"""Our own attention of rows to themselves: the runtime's answers, the same to the last bit in any company."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from service.engine.arrays import Array
from service.engine.session import Session, SessionOptions
from tests.service.engine.native.attentions import OTHER_FORMS, Change, Form, is_ours_after, ours, run
from tests.service.engine.native.machine import needs_instructions
from tests.service.engine.native.products import operators

ENCODER = Form(has_cache=False, is_causal=False)
# Query heads, key heads and their width, also such as fill no register.
SIZES = [(4, 4, 16), (6, 2, 48), (2, 1, 64), (17, 1, 16), (2, 2, 80), (1, 1, 272), (4, 4, 8), (3, 1, 24), (2, 2, 40)]
ROWS = [[0], [1], [16, 3], [0, 40, 39], [63, 64, 65], [127, 128, 2], [300]]  # last tokens: over tiles and stretches


def assert_like_the_runtime(form: Form, path: Path) -> None:
    form.write(path)
    assert operators(path) == ["RaggedAttention"]
    own, plain = ours(path, 2), Session(path, SessionOptions(2, native=False))
    for last in ROWS:
        inputs = form.inputs(last, max(last) + 1)
        (output,), (expected,) = run(own, inputs), run(plain, inputs)
        for row, end in enumerate(last):
            np.testing.assert_allclose(output[row, : end + 1], expected[row, : end + 1], atol=1e-5)


@needs_instructions
@pytest.mark.parametrize("is_packed", [False, True], ids=["", "packed"])
@pytest.mark.parametrize(("heads", "kv_heads", "width"), SIZES)
def test_heads_of_any_size_attend_as_with_the_runtimes_operator(
    tmp_path: Path, heads: int, kv_heads: int, width: int, is_packed: bool
) -> None:
    form = replace(ENCODER, heads=heads, kv_heads=kv_heads, width=width, is_packed=is_packed)

    assert_like_the_runtime(form, tmp_path / "attention.onnx")


@needs_instructions
@pytest.mark.parametrize(
    ("is_causal", "turns", "has_bias"), list(itertools.product([False, True], [False, True], [False, True]))
)
def test_turns_and_biases_are_the_runtimes(tmp_path: Path, is_causal: bool, turns: bool, has_bias: bool) -> None:
    form = replace(ENCODER, is_causal=is_causal, turns=turns, has_bias=has_bias)

    assert_like_the_runtime(form, tmp_path / "attention.onnx")


@needs_instructions
@pytest.mark.parametrize("is_causal", [False, True])
def test_scores_fall_with_the_distance_without_a_bias(tmp_path: Path, is_causal: bool) -> None:
    form = replace(ENCODER, is_causal=is_causal, turns=True, has_slopes=True)

    assert_like_the_runtime(form, tmp_path / "attention.onnx")


@needs_instructions
@pytest.mark.parametrize("is_causal", [False, True], ids=["both ways", "of those before"])
@pytest.mark.parametrize("window", [1, 7, 130])
def test_windows_are_the_runtimes_and_need_no_bias(tmp_path: Path, window: int, is_causal: bool) -> None:
    assert_like_the_runtime(replace(ENCODER, is_causal=is_causal, window=window), tmp_path / "attention.onnx")


@pytest.mark.parametrize(("name", "value"), [("seen", 1.0), ("hidden", -1.0), ("reach", None)])
def test_a_bias_that_does_more_than_hide_stays(tmp_path: Path, name: str, value: float | None) -> None:
    path = tmp_path / "attention.onnx"
    model = onnx.load(replace(ENCODER, window=7).write(path))
    constant = next(each for each in model.graph.initializer if each.name == name)
    if value is None:  # it is told by each request
        model.graph.initializer.remove(constant)
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.INT64, []))
    else:
        constant.CopyFrom(numpy_helper.from_array(np.array(value, np.float32), name))
    onnx.save(model, path)

    assert "Where" in operators(path) and "RaggedAttention" in operators(path)


@needs_instructions
def test_a_scale_of_its_own_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "attention.onnx"
    model = onnx.load(ENCODER.write(path))
    model.graph.node[0].attribute.append(helper.make_attribute("scale", 0.7))
    onnx.save(model, path)
    inputs = ENCODER.inputs([20], 21)

    (output,), (expected,) = run(ours(path), inputs), run(Session(path, SessionOptions(1, native=False)), inputs)
    np.testing.assert_allclose(output, expected, atol=1e-5)


@needs_instructions
@pytest.mark.parametrize(
    "form",
    [
        ENCODER,
        replace(ENCODER, heads=6, width=24, is_packed=True),
        replace(ENCODER, turns=True, has_bias=True),
        replace(ENCODER, is_causal=True, window=40),
        replace(ENCODER, window=40),
    ],
    ids=["plain", "packed", "turned and biased", "a window", "a window both ways"],
)
def test_a_rows_answer_is_the_same_to_the_last_bit_alone_and_among_others(tmp_path: Path, form: Form) -> None:
    path, last = form.write(tmp_path / "attention.onnx"), [70, 3, 199, 0, 128]
    one, several = ours(path, 1), ours(path, 3)
    inputs = form.inputs(last, 200)
    (together,) = run(several, inputs)

    for row, end in enumerate(last):
        alone = {name: array[row : row + 1, : end + 1] for name, array in inputs.items() if array.ndim == 3}
        alone |= {"last_positions": np.array([end], np.int32), "total_length": np.array(end + 1, np.int32)}
        if "places" in inputs:
            alone["places"] = inputs["places"][: end + 1]
        if form.has_bias:
            alone["bias"] = np.ascontiguousarray(inputs["bias"][:, :, : end + 1, : end + 1])
        np.testing.assert_array_equal(run(one, alone)[0][0], together[row, : end + 1])


@needs_instructions
def test_padding_is_answered_with_zeros_and_never_seen(tmp_path: Path) -> None:
    session = ours(ENCODER.write(tmp_path / "attention.onnx"))
    inputs = ENCODER.inputs([19, 7], 20)
    (output,) = run(session, inputs)
    for name in ("query", "key", "value"):
        inputs[name][1, 8:] = np.nan

    assert not output[1, 8:].any()
    np.testing.assert_array_equal(run(session, inputs)[0], output)


@needs_instructions
def test_a_row_that_has_no_numbers_takes_none_from_the_others(tmp_path: Path) -> None:
    session = ours(ENCODER.write(tmp_path / "attention.onnx"), 2)
    inputs = ENCODER.inputs([90, 90, 7], 91)
    (expected,) = run(session, inputs)
    inputs["key"][1] = np.nan
    (output,) = run(session, inputs)

    assert np.isnan(output[1]).all()
    np.testing.assert_array_equal(output[[0, 2]], expected[[0, 2]])


@needs_instructions
def test_no_rows_are_answered_with_no_rows(tmp_path: Path) -> None:
    session = ours(replace(ENCODER, is_packed=True).write(tmp_path / "attention.onnx"))
    inputs = {
        "query": np.empty((0, 5, 128), np.float32),
        "last_positions": np.empty(0, np.int32),
        "total_length": np.array(5, np.int32),
    }

    assert run(session, inputs)[0].shape == (0, 5, 64)


@needs_instructions
def test_no_rows_that_another_operator_makes_are_not_taken_for_nothing(tmp_path: Path) -> None:
    model = onnx.load(ENCODER.write(tmp_path / "attention.onnx"))
    for place, name in enumerate(("query", "key", "value")):
        model.graph.node.insert(0, helper.make_node("Neg", [name], [f"less_{name}"]))
        model.graph.node[-1].input[place] = f"less_{name}"
    onnx.save(model, tmp_path / "attention.onnx")
    inputs = {name: np.empty((0, 5, width), np.float32) for name, width in (("query", 64), ("key", 32), ("value", 32))}
    lengths = {"last_positions": np.empty(0, np.int32), "total_length": np.array(5, np.int32)}

    assert run(ours(tmp_path / "attention.onnx"), inputs | lengths)[0].shape == (0, 5, 64)


@needs_instructions
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"last_positions": np.array([20, 3], np.int32)}, "not among its tokens"),
        ({"last_positions": np.array([-1, 3], np.int32)}, "not among its tokens"),
        ({"last_positions": np.array([3], np.int32)}, "one last position a row"),
        ({"bias": np.zeros((1, 4, 20, 19), np.float32)}, "bias is too short"),
        ({"bias": np.zeros((1, 3, 20, 20), np.float32)}, "bias has another shape"),
        ({"key": np.zeros((2, 19, 32), np.float32)}, "another shape"),
        ({"query": np.zeros((2, 20, 63), np.float32)}, "another shape"),
        ({"query": np.zeros((2, 20, 3), np.float32)}, "heads have no numbers"),
    ],
)
def test_a_run_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Array], message: str) -> None:
    form = replace(ENCODER, has_bias=True)
    session = ours(form.write(tmp_path / "attention.onnx"))

    with pytest.raises(Exception, match=f"{message}|invalid dimensions"):
        run(session, {**form.inputs([19, 2], 20), **changes})


def window_looks_both_ways(graph: onnx.GraphProto) -> None:
    graph.node[0].attribute.append(helper.make_attribute("local_window_size", 7))


def keys_are_kept(graph: onnx.GraphProto) -> None:
    graph.output.append(helper.make_tensor_value_info("present_key", TensorProto.FLOAT, None))


def numbers_have_16_bits(graph: onnx.GraphProto) -> None:
    for value in (*graph.input[:3], *graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16


def numbers_become_16_bits(graph: onnx.GraphProto) -> None:
    graph.node[0].input[0] = "halves"
    graph.node.insert(0, helper.make_node("Cast", ["query"], ["halves"], to=TensorProto.FLOAT16))


@pytest.mark.parametrize(
    "change", [*OTHER_FORMS, window_looks_both_ways, keys_are_kept, numbers_have_16_bits, numbers_become_16_bits]
)
def test_an_attention_of_another_form_is_left_to_the_runtime(tmp_path: Path, change: Change) -> None:
    assert not is_ours_after(change, ENCODER, tmp_path / "attention.onnx")
