"""Graphs of one product, as the exporter writes them, and both ways to run one."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from service.engine.arrays import Array
from service.engine.native.graph import native_graph
from service.engine.session import Session, SessionOptions


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


def assert_same(own: Array, plain: Array) -> None:
    """Demand the same answers to the last bit; on Arm nearly: ONNX Runtime rounds a product and its bias once there."""
    if platform.machine() == "aarch64":
        np.testing.assert_allclose(own, plain, rtol=1e-6, atol=1e-6 * np.abs(plain).max(initial=0))
    else:
        np.testing.assert_array_equal(own, plain)
