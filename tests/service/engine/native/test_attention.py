"""Our own attention gives what ONNX Runtime's gives, and each token the same answer in any company."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from service.engine.arrays import Array
from service.engine.native.attention import SLOTS, SOURCE_SLOTS
from service.engine.native.graph import native_graph
from service.engine.session import Session, SessionOptions
from tests.service.engine.native.attentions import (
    OTHER_FORMS,
    OUTPUTS,
    Change,
    Form,
    halved,
    is_ours_after,
    ours,
    run,
)
from tests.service.engine.native.machine import needs_instructions
from tests.service.engine.native.products import operators

SIZES = [(4, 4, 16), (6, 2, 48), (2, 1, 64), (16, 1, 16), (2, 2, 80), (1, 1, 128), (1, 1, 256)]


class Given(NamedTuple):
    """What a run is given: see `Form.inputs`."""

    last: list[int]
    tokens: int = 1
    before: int = 0
    capacity: int = 96


RUNS = [
    Given([0, 17, 60]),
    Given([1000, 514, 511], capacity=1100),
    Given([19, 7, 0], tokens=20),
    Given([89, 40], tokens=90),
    Given([632], tokens=33, before=600, capacity=1200),
]


def assert_like_the_runtime(form: Form, path: Path, threads: int = 2) -> None:
    form.write(path)
    assert operators(path) == ["Attention"]
    own, plain = ours(path, threads), Session(path, SessionOptions(threads, native=False))
    for given in RUNS:
        inputs = form.inputs(*given)
        (output, *present), (expected, *expected_present) = run(own, inputs), run(plain, inputs)
        for row, last in enumerate(given.last):
            real = last + 1 - given.before if given.tokens > 1 else 1
            np.testing.assert_allclose(output[row, :real], expected[row, :real], atol=1e-5)
            for one, other in zip(present, expected_present, strict=True):
                np.testing.assert_allclose(one[row, :, : last + 1], other[row, :, : last + 1], atol=1e-6)


@needs_instructions
@pytest.mark.parametrize("is_packed", [False, True], ids=["", "packed"])
@pytest.mark.parametrize(("heads", "kv_heads", "width"), SIZES)
def test_heads_of_any_size_attend_as_with_the_runtimes_operator(
    tmp_path: Path, heads: int, kv_heads: int, width: int, is_packed: bool
) -> None:
    assert_like_the_runtime(Form(heads, kv_heads, width, is_packed), tmp_path / "attention.onnx")


@needs_instructions
@pytest.mark.parametrize(
    ("is_packed", "turns", "window"), list(itertools.product([False, True], [False, True], [0, 1, 7, 600]))
)
def test_turns_and_windows_are_the_runtimes(tmp_path: Path, is_packed: bool, turns: bool, window: int) -> None:
    form = Form(is_packed=is_packed, turns=turns, window=window)

    assert_like_the_runtime(form, tmp_path / "attention.onnx")


@needs_instructions
def test_a_part_of_a_head_is_turned(tmp_path: Path) -> None:
    assert_like_the_runtime(Form(width=64, turns=True, turned=16), tmp_path / "attention.onnx")


@needs_instructions
@pytest.mark.parametrize("turns", [False, True], ids=["", "turned"])
def test_a_bias_is_added_to_the_scores(tmp_path: Path, turns: bool) -> None:
    assert_like_the_runtime(Form(turns=turns, has_bias=True), tmp_path / "attention.onnx")


@needs_instructions
@pytest.mark.parametrize("window", [0, 7])
def test_scores_fall_with_the_distance_without_a_bias(tmp_path: Path, window: int) -> None:
    path = tmp_path / "attention.onnx"
    assert_like_the_runtime(Form(heads=6, window=window, has_slopes=True), path)

    assert operators(path) == ["Attention"]


@needs_instructions
def test_a_source_whose_last_token_is_handed_in_again_stays_as_it_is(tmp_path: Path) -> None:
    form = Form()
    session = ours(form.write(tmp_path / "attention.onnx"), half_cache=True)
    inputs = halved(form.inputs([30, 11], capacity=37))  # a room that no block fills
    for row, last in enumerate([30, 11]):
        for new, past in (("key", "past_key"), ("value", "past_value")):
            inputs[new][row, 0] = inputs[past][row, :, last].ravel()
    _, keys, values = run(session, inputs)

    np.testing.assert_array_equal(keys, inputs["past_key"])
    np.testing.assert_array_equal(values, inputs["past_value"])


@needs_instructions
def test_a_scale_of_its_own_is_taken(tmp_path: Path) -> None:
    form, path = Form(), tmp_path / "attention.onnx"
    model = onnx.load(form.write(path))
    model.graph.node[0].attribute.append(helper.make_attribute("scale", 0.7))
    onnx.save(model, path)
    own, plain = ours(path), Session(path, SessionOptions(1, native=False))
    inputs = form.inputs([30, 2])

    np.testing.assert_allclose(run(own, inputs)[0], run(plain, inputs)[0], atol=1e-5)


@needs_instructions
@pytest.mark.parametrize("half_cache", [False, True], ids=["", "16 bits"])
@pytest.mark.parametrize(
    "form",
    [
        Form(turns=True),
        Form(6, 2, 64, window=40),
        Form(4, 1, 32, window=536),
        Form(2, 2, 128),
        Form(16, 1, 32, has_bias=True),
    ],
    ids=["turned", "a window", "a window over stretches", "wide", "shared by 16"],
)
def test_a_tokens_answer_is_the_same_to_the_last_bit_alone_and_among_others(
    tmp_path: Path, form: Form, half_cache: bool
) -> None:
    session = ours(form.write(tmp_path / "attention.onnx"), 2, half_cache=half_cache)
    start, tokens = 490, 45  # over the end of a stretch
    if form.window > start:  # so are its windows
        start += 80
    inputs = form.inputs([start + tokens - 1], tokens, start, 640)
    inputs = halved(inputs) if half_cache else inputs
    together, *cache = run(session, inputs)
    past = {name: inputs[name] for name in ("past_key", "past_value")}
    for token in range(tokens):
        position = start + token
        alone = {name: array[:, token : token + 1] for name, array in inputs.items() if array.ndim == 3}
        alone |= {"last_positions": np.array([position], np.int32)}
        alone |= {"total_length": np.array(position + 1, np.int32), **past}
        if form.has_bias:
            alone["bias"] = inputs["bias"][:, :, token : token + 1, : position + 1]
        output, *present = run(session, alone)
        past = dict(zip(past, present, strict=True))
        np.testing.assert_array_equal(output[:, 0], together[:, token])
    for one, other in zip(cache, past.values(), strict=True):
        np.testing.assert_array_equal(one, other)


FORMS_WITH_SLOTS = [Form(turns=True), Form(6, 2, 64, window=40), Form(16, 1, 32, has_bias=True), Form(is_packed=True)]


@needs_instructions
@pytest.mark.parametrize("half_cache", [False, True], ids=["", "16 bits"])
@pytest.mark.parametrize("form", FORMS_WITH_SLOTS, ids=["turned", "a window", "shared by 16", "packed"])
def test_rows_of_one_slot_are_its_tokens_one_behind_the_other_to_the_last_bit(
    tmp_path: Path, form: Form, half_cache: bool
) -> None:
    session = ours(form.write(tmp_path / "attention.onnx"), 2, half_cache=half_cache)
    slots, last = [0, 0, 0, 1, 3, 3], [70, 71, 72, 4, 511, 512]  # slot 2 rests
    inputs = form.inputs(last, capacity=520)
    past = {name: inputs[name][:4] for name in ("past_key", "past_value")}
    inputs = halved(inputs | past) if half_cache else inputs | past
    together, *cache = run(session, inputs | {SLOTS: np.array(slots, np.int32)})
    assert session.takes_slots

    past = {name: inputs[name] for name in past}
    for row, (slot, position) in enumerate(zip(slots, last, strict=True)):
        alone = {name: array[row : row + 1] for name, array in inputs.items() if array.ndim == 3}
        alone |= {"last_positions": np.array([position], np.int32), "total_length": np.array(position + 1, np.int32)}
        alone |= {name: array[slot : slot + 1] for name, array in past.items()}
        if form.has_bias:
            alone["bias"] = inputs["bias"][row : row + 1, :, :, : position + 1]
        output, *present = run(session, alone)
        for array, new in zip(past.values(), present, strict=True):
            array[slot] = new[0]
        np.testing.assert_array_equal(output[0], together[row])
    for one, other in zip(cache, past.values(), strict=True):
        np.testing.assert_array_equal(one, other)


def sees_a_source(path: Path) -> Path:
    """Rename the past of a graph as a source's is named."""
    model = onnx.load(path)
    for value in model.graph.input:
        value.name = re.sub("^past", "cross_past", value.name)
    for place, name in enumerate(model.graph.node[0].input):
        model.graph.node[0].input[place] = re.sub("^past", "cross_past", name)
    onnx.save(model, path)
    return path


@needs_instructions
@pytest.mark.parametrize("half_cache", [False, True], ids=["", "16 bits"])
@pytest.mark.parametrize("form", [Form(), Form(6, 2, 64)], ids=["narrow", "wide"])
def test_rows_that_see_one_source_answer_as_each_with_its_own_to_the_last_bit(
    tmp_path: Path, form: Form, half_cache: bool
) -> None:
    session = ours(sees_a_source(form.write(tmp_path / "attention.onnx")), 2, half_cache=half_cache)
    slots, last = [2, 0, 0, 0, 0, 2], [19, 30, 30, 11, 30, 19]  # side by side and apart, to another token, too
    inputs = form.inputs(last, capacity=37)
    inputs = halved(inputs) if half_cache else inputs
    sources = {f"cross_{name}": inputs.pop(name)[:3] for name in ("past_key", "past_value")}
    newest = {name: inputs.pop(name)[:3] for name in ("key", "value")}  # of each source, handed in but not looked at
    shared = inputs | sources | newest | {SOURCE_SLOTS: np.array(slots, np.int32)}
    together, *left = session.run(shared, OUTPUTS)
    assert session.takes_slots

    for one, other in zip(left, sources.values(), strict=True):
        np.testing.assert_array_equal(one, other)
    for row, (slot, position) in enumerate(zip(slots, last, strict=True)):
        alone: dict[str, Array] = {"query": inputs["query"][row : row + 1]}
        alone |= {"last_positions": np.array([position], np.int32), "total_length": np.array(position + 1, np.int32)}
        alone |= {name: array[slot : slot + 1] for name, array in sources.items()}
        for name in ("key", "value"):  # its last token again
            alone[name] = alone[f"cross_past_{name}"][:, :, position].reshape(1, 1, -1).astype(np.float32)
        np.testing.assert_array_equal(session.run(alone, OUTPUTS[:1])[0][0], together[row])


@needs_instructions
@pytest.mark.parametrize("half_cache", [False, True], ids=["", "16 bits"])
def test_a_rows_answer_does_not_depend_on_other_rows_or_threads(tmp_path: Path, half_cache: bool) -> None:
    form = Form(turns=True)
    path = form.write(tmp_path / "attention.onnx")
    inputs = form.inputs([70, 3, 44, 95, 12])
    inputs = halved(inputs) if half_cache else inputs
    one, several = (ours(path, threads, half_cache=half_cache) for threads in (1, 3))
    together = run(several, inputs)[0]

    for row in range(5):
        alone = {name: array[row : row + 1] for name, array in inputs.items() if array.ndim}
        alone["total_length"] = np.array(inputs["last_positions"][row] + 1, np.int32)
        np.testing.assert_array_equal(run(one, alone)[0][0], together[row])


@needs_instructions
def test_a_cache_of_16_bits_keeps_numbers_rounded_and_is_else_the_same(tmp_path: Path) -> None:
    form = Form(6, 2, 32)
    path = form.write(tmp_path / "attention.onnx")
    inputs = form.inputs([70, 3, 44])
    rounded = {
        name: array if name == "query" or array.ndim < 3 else array.astype(np.float16).astype(np.float32)
        for name, array in inputs.items()
    }
    output, *cache = run(ours(path, half_cache=True), halved(inputs))
    expected, *expected_cache = run(ours(path), rounded)

    np.testing.assert_array_equal(output, expected)
    assert all(array.dtype == np.float16 for array in cache)
    for one, other in zip(cache, expected_cache, strict=True):
        np.testing.assert_array_equal(one, other)


@needs_instructions
def test_numbers_that_16_bits_do_not_hold_become_the_greatest_that_they_do(tmp_path: Path) -> None:
    form = Form()
    inputs = halved(form.inputs([5]))
    inputs["key"][...], inputs["value"][...] = 1e6, -1e6
    output, keys, values = run(ours(form.write(tmp_path / "attention.onnx"), half_cache=True), inputs)

    assert np.isfinite(output).all()
    assert (keys[:, :, 5] == 65504).all() and (values[:, :, 5] == -65504).all()


@needs_instructions
def test_padding_is_answered_with_zeros_and_never_seen(tmp_path: Path) -> None:
    form = Form()
    session = ours(form.write(tmp_path / "attention.onnx"))
    inputs = form.inputs([19, 7], tokens=20)
    output = run(session, inputs)[0]
    for name in ("query", "key", "value"):
        inputs[name][1, 8:] = np.nan

    assert not output[1, 8:].any()
    np.testing.assert_array_equal(run(session, inputs)[0], output)


@needs_instructions
def test_what_lies_in_the_cache_behind_a_row_is_never_seen(tmp_path: Path) -> None:
    form = Form()
    session = ours(form.write(tmp_path / "attention.onnx"))
    inputs = form.inputs([19, 50])
    output = run(session, inputs)[0]
    for name in ("past_key", "past_value"):
        inputs[name][0, :, 20:] = np.nan

    np.testing.assert_array_equal(run(session, inputs)[0], output)


@needs_instructions
def test_a_row_that_has_no_numbers_takes_none_from_the_others(tmp_path: Path) -> None:
    form = Form()
    session = ours(form.write(tmp_path / "attention.onnx"), 2)
    inputs = form.inputs([19, 50, 7])
    expected = run(session, inputs)[0]
    inputs["query"][1] = np.nan
    output = run(session, inputs)[0]

    assert np.isnan(output[1]).all()
    np.testing.assert_array_equal(output[[0, 2]], expected[[0, 2]])


@needs_instructions
def test_a_total_length_may_have_a_dimension_of_1(tmp_path: Path) -> None:
    form = Form()
    model = onnx.load(form.write(tmp_path / "attention.onnx"))
    expected = run(ours(tmp_path / "attention.onnx"), form.inputs([30, 2]))
    (total,) = [value for value in model.graph.input if value.name == "total_length"]
    total.type.tensor_type.shape.dim.add().dim_value = 1
    onnx.save(model, tmp_path / "attention.onnx")
    inputs = form.inputs([30, 2])
    found = run(ours(tmp_path / "attention.onnx"), inputs | {"total_length": inputs["total_length"].reshape(1)})

    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def looks_both_ways(graph: onnx.GraphProto) -> None:
    graph.node[0].attribute.append(helper.make_attribute("causal", 0))


def has_no_past(graph: onnx.GraphProto) -> None:
    graph.node[0].input[3:5] = ["", ""]


def keeps_halves_already(graph: onnx.GraphProto) -> None:
    for value in graph.input[3:5]:
        value.type.tensor_type.elem_type = TensorProto.FLOAT16


def width_is_not_known(graph: onnx.GraphProto) -> None:
    graph.input[3].type.tensor_type.shape.dim[3].dim_param = "width"


@pytest.mark.parametrize(
    "change", [*OTHER_FORMS, looks_both_ways, has_no_past, keeps_halves_already, width_is_not_known]
)
def test_an_attention_of_another_form_is_left_to_the_runtime(tmp_path: Path, change: Change) -> None:
    assert not is_ours_after(change, Form(), tmp_path / "attention.onnx")


@pytest.mark.parametrize("form", [Form(width=8), Form(width=272), Form(17, 1)], ids=["narrow", "wide", "shared"])
def test_sizes_that_ours_does_not_take_are_left_to_the_runtime(tmp_path: Path, form: Form) -> None:
    assert native_graph(form.write(tmp_path / "attention.onnx")) is None


def with_other_attention(model: onnx.ModelProto) -> onnx.NodeProto:
    other = onnx.NodeProto()
    other.CopyFrom(model.graph.node[0])
    other.output[:] = ["other", "other_key", "other_value"]
    other.attribute.append(helper.make_attribute("softcap", 30.0))
    return other


def with_sum_of_keys(model: onnx.ModelProto) -> onnx.NodeProto:
    return helper.make_node("ReduceSum", ["past_key"], ["other"])


@pytest.mark.parametrize("reader", [with_other_attention, with_sum_of_keys])
def test_a_cache_is_of_16_bits_only_if_all_who_read_it_are_ours(
    tmp_path: Path, reader: Callable[[onnx.ModelProto], onnx.NodeProto]
) -> None:
    model = onnx.load(Form().write(tmp_path / "attention.onnx"))
    model.graph.node.append(reader(model))
    model.graph.output.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, None))
    onnx.save(model, tmp_path / "attention.onnx")
    graph = native_graph(tmp_path / "attention.onnx", half_cache=True)

    assert graph is not None and not graph.has_half_cache and not graph.takes_slots
    first, _ = onnx.load_from_string(graph.model).graph.node
    assert first.op_type == "Attention"
