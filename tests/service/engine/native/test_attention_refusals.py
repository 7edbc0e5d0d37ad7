"""Runs of our own attention that would read or write beyond what there is are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from service.engine.arrays import Array
from service.engine.native.attention import SLOTS
from tests.service.engine.native.attentions import POSITIONS, Form, ours, run
from tests.service.engine.native.machine import needs_instructions


@needs_instructions
@pytest.mark.parametrize(
    ("slots", "last", "message"),
    [
        ([0, 0], [5, 7], "tokens in a row"),
        ([0, 0], [6, 5], "tokens in a row"),
        ([1, 0], [5, 5], "slots ascend"),
        ([0, 2], [5, 5], "rows of the past"),
        ([-1, 0], [5, 5], "rows of the past"),
        ([0], [5, 5], "one slot a row"),
    ],
)
def test_slots_that_cannot_be_are_refused(tmp_path: Path, slots: list[int], last: list[int], message: str) -> None:
    form = Form()
    session = ours(form.write(tmp_path / "attention.onnx"))

    with pytest.raises(Exception, match=message):
        run(session, form.inputs(last) | {SLOTS: np.array(slots, np.int32)})


@needs_instructions
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"last_positions": np.array([96, 3], np.int32)}, "no room in the cache"),
        ({"last_positions": np.array([-1, 3], np.int32)}, "no room in the cache"),
        ({"last_positions": np.array([3], np.int32)}, "one last position a row"),
        ({"bias": np.zeros((1, 4, 1, 2), np.float32)}, "bias is too short"),
        ({"last_positions": np.array([70, 3], np.int32)}, "bias is too short"),
        ({"bias": np.zeros((1, 3, 1, 31), np.float32)}, "bias has another shape"),
        ({"query": np.zeros((2, 1, 63), np.float32)}, "another shape"),
    ],
)
def test_a_run_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Array], message: str) -> None:
    form = Form(has_bias=True)
    session = ours(form.write(tmp_path / "attention.onnx"))

    with pytest.raises(Exception, match=f"{message}|invalid dimensions"):
        run(session, {**form.inputs([30, 2]), **changes})


@needs_instructions
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"last_positions": [99, 90], "total_length": 100}, "no room in the cache"),
        ({"last_positions": [19, 45], "total_length": 60}, "no room in the cache"),
        ({"past_value": np.zeros((2, 2, 50, 16), np.float32)}, "the past has another shape"),
        ({"total_length": [20, 20]}, "one total length"),
    ],
)
def test_several_tokens_that_cannot_be_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    form = Form()
    model = onnx.load(form.write(tmp_path / "attention.onnx"))
    for value in model.graph.input:  # or the runtime refuses the shapes itself
        value.type.tensor_type.ClearField("shape")
        if value.name.startswith("past"):
            shape = helper.make_tensor_type_proto(TensorProto.FLOAT, [None, 2, None, 16])
            value.type.CopyFrom(shape)
    onnx.save(model, tmp_path / "attention.onnx")
    inputs = form.inputs([19, 7], tokens=20)
    changed = {name: np.asarray(array, inputs[name].dtype) for name, array in changes.items()}

    with pytest.raises(Exception, match=message):
        run(ours(tmp_path / "attention.onnx"), {**inputs, **changed})


@needs_instructions
def test_positions_that_the_tables_of_turns_have_not_are_refused(tmp_path: Path) -> None:
    form = Form(turns=True)
    session = ours(form.write(tmp_path / "attention.onnx"))

    run(session, form.inputs([POSITIONS - 1], capacity=POSITIONS + 9))
    with pytest.raises(Exception, match="a position is not in the tables of turns"):
        run(session, form.inputs([POSITIONS], capacity=POSITIONS + 9))


@needs_instructions
def test_tables_of_turns_of_two_shapes_are_refused(tmp_path: Path) -> None:
    form = Form(turns=True)
    model = onnx.load(form.write(tmp_path / "attention.onnx"))
    (sines,) = [table for table in model.graph.initializer if table.name == "sines"]
    sines.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(sines)[:100], "sines"))
    onnx.save(model, tmp_path / "attention.onnx")

    with pytest.raises(Exception, match="the tables of turns have another shape"):
        run(ours(tmp_path / "attention.onnx"), form.inputs([5]))
