"""A package's graph with `trifold.Linear` where it multiplies 8-bit integers: the same answers to the last bit.

A product is several nodes, of which the rounding of activations alone goes over memory three times (`int8`: Abs,
ReduceMax, Div, QuantizeLinear, MatMulIntegerToFloat, Mul, Add; `int8-static`: QuantizeLinear, MatMulIntegerToFloat).
Here it is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from service.engine.wiring import drop_unused, makers_of, users_of

Array = NDArray[Any]

DOMAIN = "trifold"
PANEL_COLUMNS, GROUP = 32, 4  # as `linear.h` reads matrices
ALIGNMENT = 64  # bytes, of a register and of a cache's line: one that lies across two lines is read twice
INT8, UINT8, FLOAT = onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.FLOAT
NOWHERE = 2**60  # bytes, behind the end of any file
SMALL = 4096  # bytes of a weight that stays in the graph


@dataclass(frozen=True)
class NativeGraph:
    """A graph, and its weights beside it, which all sessions that run it can share."""

    model: bytes
    weights: Mapping[str, Array]


def has_products(path: Path) -> bool:
    """Tell whether a graph's file names the operator that ours stands for; it is searched and not read as a graph."""
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return content.find(b"MatMulIntegerToFloat") >= 0


def native_graph(path: Path) -> NativeGraph | None:
    """Read a graph and write it with our operators; None if there is nothing for them in it."""
    model = onnx.load(path, load_external_data=False)
    if any(each.HasField("g") or each.graphs for node in model.graph.node for each in node.attribute):
        return None  # what a loop or a branch reads of its surroundings is not looked for
    rewrite = _Rewrite(model, path.resolve())
    return rewrite.written() if rewrite.run() else None


def panels_of(matrix: Array) -> Array:
    """Return a matrix (depth, columns) in the order in which `linear.cpp` reads it.

    That is (panels, groups, columns of a panel, numbers of a group), filled up with zeros.
    """
    depth, columns = matrix.shape
    panels, groups = -(-columns // PANEL_COLUMNS), -(-depth // GROUP)
    ordered = aligned((panels, groups, PANEL_COLUMNS, GROUP), np.int8)
    for panel in range(panels):  # one at a time: a copy of a whole vocabulary would take as much memory again
        some = matrix[:, panel * PANEL_COLUMNS : (panel + 1) * PANEL_COLUMNS]
        filled = np.pad(some, ((0, groups * GROUP - depth), (0, PANEL_COLUMNS - some.shape[1])))
        ordered[panel] = filled.reshape(groups, GROUP, PANEL_COLUMNS).transpose(0, 2, 1)
    return ordered


def aligned(shape: Sequence[int], dtype: Any) -> Array:
    """Take memory that begins with a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    values: Array = memory[start : start + size].view(dtype).reshape(shape)
    return values


def _copied(values: Array) -> Array:
    copy = aligned(values.shape, values.dtype)
    copy[...] = values
    return copy


@dataclass(frozen=True)
class _Product:
    """A product as a graph has it, and which nodes of it one node can stand for."""

    given: str
    matrix: str
    is_transposed: bool
    depth: int
    columns: int
    scales: Array
    step: float
    zero_point: int
    by_rows: bool
    bias: str
    last: onnx.NodeProto


class _Rewrite:
    def __init__(self, model: onnx.ModelProto, path: Path) -> None:
        self._model, self._path = model, path
        self._inputs = {each.name for each in model.graph.input}  # may be given with a run, although they have a value
        self._initializers = {each.name: each for each in model.graph.initializer if each.name not in self._inputs}
        self._makers, self._users = makers_of(model.graph), users_of(model.graph)
        self._outputs = {output.name for output in model.graph.output}
        self._weights: dict[str, Array] = {}

    def run(self) -> bool:
        """Put our operator where a product is; return whether there was one."""
        found = (self._product(node) for node in self._model.graph.node if node.op_type == "MatMulIntegerToFloat")
        by_last = {id(product.last): product for product in found if product is not None}
        if not by_last:
            return False
        nodes = [self._linear(by_last[id(node)]) if id(node) in by_last else node for node in self._model.graph.node]
        del self._model.graph.node[:]
        self._model.graph.node.extend(nodes)
        drop_unused(self._model.graph)
        return True

    def written(self) -> NativeGraph:
        """Take out of the graph what our operators read, and the tables that rows are looked up in.

        Any other weight may be read by whoever prepares a graph to run, as by those who fuse operators.
        """
        others = {
            name
            for node in self._model.graph.node
            for place, name in enumerate(node.input)
            if node.domain != DOMAIN and not (place == 0 and self._looks_up(node))
        }
        for tensor in self._model.graph.initializer:
            if tensor.name in others:
                continue
            if tensor.name not in self._weights:
                values = self._values(tensor.name)
                if values.nbytes < SMALL:
                    continue
                self._weights[tensor.name] = _copied(values)
            self._place_beside(tensor)
        self._model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        used = {tensor.name for tensor in self._model.graph.initializer}
        weights = {name: values for name, values in self._weights.items() if name in used}
        return NativeGraph(self._model.SerializeToString(), weights)

    def _looks_up(self, node: onnx.NodeProto) -> bool:
        """Tell whether a node looks up rows that a request asks for: others may be looked up before there is one."""
        return node.op_type == "Gather" and node.input[1] in self._inputs

    def _place_beside(self, tensor: onnx.TensorProto) -> None:
        """Leave of a weight its name and shape: sessions are given the rest, and never read it where it is said to be.

        That must be a file, and is the graph's own, at a place behind its end, so that reading it would fail.
        """
        name, kind, shape = tensor.name, tensor.data_type, list(tensor.dims)
        tensor.Clear()
        tensor.name, tensor.data_type, tensor.data_location = name, kind, onnx.TensorProto.EXTERNAL
        tensor.dims.extend(shape)
        for key, value in (("location", self._path.name), ("offset", str(NOWHERE))):
            tensor.external_data.add(key=key, value=value)

    def _product(self, node: onnx.NodeProto) -> _Product | None:
        """Return what a product consists of, if it is of a form that our operator has."""
        rounded, matrix, step, scales, zero_point, matrix_zero_point, bias = [*node.input, *[""] * 7][:7]
        matrix, is_transposed = self._behind_transposition(matrix)
        rounding = self._makers.get(rounded)
        if matrix_zero_point or rounding is None or rounding.op_type != "QuantizeLinear" or len(rounding.input) != 3:
            return None
        given, *own = rounding.input
        kinds = {matrix: INT8, step: FLOAT, scales: FLOAT, zero_point: UINT8, own[0]: FLOAT, own[1]: UINT8}
        if bias:
            kinds[bias] = FLOAT
        if any(name not in self._initializers or self._initializers[name].data_type != kinds[name] for name in kinds):
            return None
        shape, count = self._initializers[matrix].dims, self._values(scales).size
        own_step, own_zero_point, other_step, other_zero_point = singles = [
            *map(self._values, [*own, step, zero_point])
        ]
        if len(shape) != 2 or any(each.size != 1 for each in singles):
            return None
        depth, columns = reversed(shape) if is_transposed else shape
        if not depth * columns or count not in (1, columns) or own_zero_point.item() != other_zero_point.item():
            return None
        last = node
        by_rows = None if bias else self._by_rows(given, node)
        if by_rows is not None:
            given, last = by_rows
        if not bias and (addition := self._bias_behind(last, columns)) is not None:
            last, bias = addition
        return _Product(
            given,
            matrix,
            is_transposed,
            depth,
            columns,
            np.broadcast_to(other_step.item() * self._values(scales).ravel(), (columns,)),
            own_step.item(),
            own_zero_point.item(),
            by_rows is not None,
            bias,
            last,
        )

    def _behind_transposition(self, matrix: str) -> tuple[str, bool]:
        """Return a matrix before it was transposed, and whether it was; one of other dimensions than two never is."""
        node = self._makers.get(matrix)
        if node is None or node.op_type != "Transpose" or [list(each.ints) for each in node.attribute] != [[1, 0]]:
            return matrix, False
        return node.input[0], True

    def _by_rows(self, scaled: str, node: onnx.NodeProto) -> tuple[str, onnx.NodeProto] | None:
        """Return rows before they were divided by their largest numbers, and the product once it has these again."""
        division = self._makers.get(scaled)
        if division is None or division.op_type != "Div":
            return None
        given, largest = division.input
        maximum = self._makers.get(largest)
        if maximum is None or maximum.op_type != "ReduceMax" or not self._is_of_rows(maximum):
            return None
        size = self._makers.get(maximum.input[0])
        if size is None or size.op_type != "Abs" or size.input[0] != given:
            return None
        multiplication = self._only_user(node)
        if multiplication is None or multiplication.op_type != "Mul" or largest not in multiplication.input:
            return None
        return given, multiplication

    def _is_of_rows(self, maximum: onnx.NodeProto) -> bool:
        """Tell whether it is that of the last axis, which stays."""
        keeps = all(each.i for each in maximum.attribute if each.name == "keepdims")
        is_known = len(maximum.input) == 2 and maximum.input[1] in self._initializers
        return keeps and is_known and self._values(maximum.input[1]).tolist() == [-1]

    def _bias_behind(self, node: onnx.NodeProto, columns: int) -> tuple[onnx.NodeProto, str] | None:
        """Return the addition of a constant to each column, and the constant."""
        addition = self._only_user(node)
        if addition is None or addition.op_type != "Add":
            return None
        (other,) = [name for name in addition.input if name != node.output[0]] or [""]
        bias = self._initializers.get(other)
        return (addition, other) if bias is not None and (bias.data_type, *bias.dims) == (FLOAT, columns) else None

    def _only_user(self, node: onnx.NodeProto) -> onnx.NodeProto | None:
        (output,) = node.output
        users = self._users[output]
        return users[0] if len(users) == 1 and output not in self._outputs else None

    def _linear(self, product: _Product) -> onnx.NodeProto:
        order = "columns" if product.is_transposed else "rows"
        weights = f"{product.matrix}_panels_of_{order}"
        offsets = f"{weights}_offsets_{product.zero_point}"
        if weights not in self._weights:
            matrix = self._values(product.matrix)
            matrix = matrix.T if product.is_transposed else matrix
            self._add(weights, panels_of(matrix))
        if offsets not in self._weights:
            sums = self._weights[weights].sum(axis=(1, 3), dtype=np.int32)
            self._add(offsets, _copied(-product.zero_point * sums.ravel()))
        scales = f"{product.last.output[0]}_scales_of_panels"
        self._add(scales, _copied(np.pad(product.scales, (0, -product.columns % PANEL_COLUMNS))))
        return helper.make_node(
            "Linear",
            [product.given, weights, scales, offsets, *filter(None, [product.bias])],
            product.last.output[:1],
            domain=DOMAIN,
            depth=product.depth,
            columns=product.columns,
            step=product.step,
            zero_point=product.zero_point,
            by_rows=int(product.by_rows),
        )

    def _add(self, name: str, values: Array) -> None:
        self._weights[name] = values
        kind = helper.np_dtype_to_tensor_dtype(values.dtype)
        self._model.graph.initializer.append(onnx.TensorProto(name=name, data_type=kind, dims=values.shape))

    def _values(self, name: str) -> Array:
        return numpy_helper.to_array(self._initializers[name], str(self._path.parent))
