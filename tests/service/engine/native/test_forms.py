"""Which products our operator stands for, whatever is around them, and which it leaves to ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from service.engine.arrays import Array
from service.engine.native.graph import native_graph
from service.engine.session import Session, SessionOptions
from tests.service.engine.native.machine import needs_instructions
from tests.service.engine.native.products import assert_same, both, product

Change = Callable[[onnx.GraphProto], None]


def weight(graph: onnx.GraphProto, name: str) -> onnx.TensorProto:
    (found,) = [each for each in graph.initializer if each.name == name]
    tensor: onnx.TensorProto = found
    return tensor


def replace_weight(graph: onnx.GraphProto, name: str, values: Array) -> None:
    weight(graph, name).CopyFrom(numpy_helper.from_array(values, name))


def show(graph: onnx.GraphProto, name: str) -> None:
    graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))


def inner_product(graph: onnx.GraphProto) -> onnx.NodeProto:
    (found,) = [each for each in graph.node if each.op_type == "MatMulIntegerToFloat"]
    node: onnx.NodeProto = found
    return node


def matrix_has_a_zero_point(graph: onnx.GraphProto) -> None:
    inner_product(graph).input.append("matrix_zero_point")
    graph.initializer.append(numpy_helper.from_array(np.zeros(40, np.int8), "matrix_zero_point"))


def activations_are_signed(graph: onnx.GraphProto) -> None:
    replace_weight(graph, "zero_point", np.array(0, np.int8))


def matrix_is_unsigned(graph: onnx.GraphProto) -> None:
    replace_weight(graph, "matrix", numpy_helper.to_array(weight(graph, "matrix")).view(np.uint8))


def matrix_is_given_with_a_run(graph: onnx.GraphProto) -> None:
    graph.input.append(helper.make_tensor_value_info("matrix", TensorProto.INT8, [40, 40]))


def matrix_is_transposed_into_itself(graph: onnx.GraphProto) -> None:
    graph.node.insert(0, helper.make_node("Transpose", ["matrix"], ["turned"], perm=[0, 1]))
    inner_product(graph).input[1] = "turned"


def rounding_has_no_zero_point(graph: onnx.GraphProto) -> None:
    del graph.node[0].input[2]


def a_branch_reads_it(graph: onnx.GraphProto) -> None:
    condition = helper.make_node("Constant", [], ["condition"], value=numpy_helper.from_array(np.array(True)))
    inside = helper.make_tensor_value_info("inside", TensorProto.FLOAT, None)
    same = helper.make_graph([helper.make_node("Identity", ["y"], ["inside"])], "same", [], [inside])
    graph.node.extend([condition, helper.make_node("If", ["condition"], ["z"], then_branch=same, else_branch=same)])
    show(graph, "z")


@pytest.mark.parametrize(
    "change",
    [
        matrix_has_a_zero_point,
        activations_are_signed,
        matrix_is_unsigned,
        matrix_is_given_with_a_run,
        matrix_is_transposed_into_itself,
        rounding_has_no_zero_point,
        a_branch_reads_it,
    ],
)
def test_a_product_of_another_form_is_left_to_onnx_runtime(tmp_path: Path, change: Change) -> None:
    path = product(tmp_path / "product.onnx", 40, 40, by_rows=False, bias=False)
    assert native_graph(path) is not None
    model = onnx.load(path)
    change(model.graph)
    onnx.save(model, path)

    assert native_graph(path) is None


def bias_within_the_product(graph: onnx.GraphProto) -> None:
    inner_product(graph).input.extend(["", "bias"])


def largest_of_all_rows(graph: onnx.GraphProto) -> None:
    replace_weight(graph, "last_axis", np.array([0, 1, 2]))


def sum_is_an_answer_too(graph: onnx.GraphProto) -> None:
    show(graph, "by_rows")


def sum_is_used_twice(graph: onnx.GraphProto) -> None:
    graph.node.append(helper.make_node("Mul", ["by_rows", "by_rows"], ["squared"]))
    show(graph, "squared")


def matrix_is_multiplied_with_both_ways(graph: onnx.GraphProto) -> None:
    inner = inner_product(graph)
    turned = [inner.input[0], "turned", *inner.input[2:]]
    graph.node.append(helper.make_node("Transpose", ["matrix"], ["turned"], perm=[1, 0]))
    graph.node.append(helper.make_node("MatMulIntegerToFloat", turned, ["other"], domain="com.microsoft"))
    show(graph, "other")


def one_scale_for_all_columns(graph: onnx.GraphProto) -> None:
    replace_weight(graph, "scales", np.array([0.01], np.float32))


def a_table_is_looked_up_in_before_any_run(graph: onnx.GraphProto) -> None:
    table = np.random.default_rng(0).standard_normal((100, 40)).astype(np.float32)
    graph.initializer.append(numpy_helper.from_array(table, "table"))
    graph.initializer.append(numpy_helper.from_array(np.array([3]), "places"))
    graph.node.append(helper.make_node("Gather", ["table", "places"], ["row"]))
    show(graph, "row")


@needs_instructions
@pytest.mark.parametrize(
    "change",
    [
        bias_within_the_product,
        largest_of_all_rows,
        sum_is_an_answer_too,
        sum_is_used_twice,
        matrix_is_multiplied_with_both_ways,
        one_scale_for_all_columns,
        a_table_is_looked_up_in_before_any_run,
    ],
)
def test_what_is_around_a_product_may_be_anything(tmp_path: Path, change: Change) -> None:
    path = product(tmp_path / "product.onnx", 40, 40, by_rows=True, bias=False)
    model = onnx.load(path)
    change(model.graph)
    onnx.save(model, path)
    own, plain = both(path)
    inputs = {"x": np.random.default_rng(0).standard_normal((2, 3, 40), np.float32)}
    names = [output.name for output in model.graph.output]

    for one, other in zip(own.run(inputs, names), plain.run(inputs, names), strict=True):
        assert_same(one, other)


@needs_instructions
def test_a_graph_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    path = product(tmp_path / "blobs" / "digest", 40, 40, by_rows=True, bias=False)
    (link := tmp_path / "product.onnx").symlink_to(path)

    assert Session(link, SessionOptions(1))._native is not None


@needs_instructions
def test_a_graph_that_cannot_be_rewritten_is_served_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = product(tmp_path / "product.onnx", 70, 90, by_rows=True, bias=False)
    x = np.ones((1, 2, 70), np.float32)
    (expected,) = Session(path, SessionOptions(1)).run({"x": x}, ["y"])
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="data", size_threshold=1000)
    (tmp_path / "data").rename(tmp_path / "blob")
    (tmp_path / "data").symlink_to("blob")  # which the library that reads weights refuses, and ONNX Runtime takes
    session = Session(path, SessionOptions(1))

    assert session._native is None and "runs as it is" in caplog.text
    np.testing.assert_array_equal(session.run({"x": x}, ["y"])[0], expected)


@needs_instructions
def test_a_graph_whose_numbers_numpy_does_not_know_is_served(tmp_path: Path) -> None:
    path = product(tmp_path / "product.onnx", 40, 40, by_rows=True, bias=True)
    model = onnx.load(path)
    table = onnx.TensorProto(name="table", data_type=TensorProto.BFLOAT16, dims=[9, 40], raw_data=bytes(720))
    model.graph.initializer.append(table)
    model.graph.input.append(helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"]))
    looked_up = helper.make_node("Gather", ["table", "ids"], ["found"])
    model.graph.node.extend([looked_up, helper.make_node("Cast", ["found"], ["row"], to=TensorProto.FLOAT)])
    show(model.graph, "row")
    onnx.save(model, path)

    inputs = {"x": np.ones((1, 1, 40), np.float32), "ids": np.array([1])}
    assert Session(path, SessionOptions(1)).run(inputs, ["row"])[0].shape == (1, 40)
