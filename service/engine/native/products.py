"""Products of 8-bit integers as graphs have them: which nodes one node of ours can stand for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from service.engine.arrays import Array
from service.engine.onnx_nodes import makers_of, users_of

INT8, UINT8, FLOAT = onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.FLOAT


@dataclass(frozen=True)
class Product:
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


class Products:
    """Finds the products of a graph, whose large weights may lie in a folder beside it."""

    def __init__(self, graph: onnx.GraphProto, folder: str) -> None:
        self._folder = folder
        inputs = {each.name for each in graph.input}  # may be given with a run, although they have a value
        self._initializers = {each.name: each for each in graph.initializer if each.name not in inputs}
        self.makers, self.users = makers_of(graph), users_of(graph)
        self._outputs = {output.name for output in graph.output}

    def values(self, name: str) -> Array:
        """Return a weight's numbers."""
        return numpy_helper.to_array(self._initializers[name], self._folder)

    def of(self, node: onnx.NodeProto) -> Product | None:
        """Return what a product consists of, if it is of a form that our operator has."""
        rounded, matrix, step, scales, zero_point, matrix_zero_point, bias = [*node.input, *[""] * 7][:7]
        matrix, is_transposed = self._behind_transposition(matrix)
        rounding = self.makers.get(rounded)
        if matrix_zero_point or rounding is None or rounding.op_type != "QuantizeLinear" or len(rounding.input) != 3:
            return None
        given, *own = rounding.input
        kinds = {matrix: INT8, step: FLOAT, scales: FLOAT, zero_point: UINT8, own[0]: FLOAT, own[1]: UINT8}
        if bias:
            kinds[bias] = FLOAT
        if any(name not in self._initializers or self._initializers[name].data_type != kinds[name] for name in kinds):
            return None
        shape, count = self._initializers[matrix].dims, self.values(scales).size
        singles = [*map(self.values, [*own, step, zero_point])]
        own_step, own_zero_point, other_step, other_zero_point = singles
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
        return Product(
            given,
            matrix,
            is_transposed,
            depth,
            columns,
            np.broadcast_to(other_step.item() * self.values(scales).ravel(), (columns,)),
            own_step.item(),
            own_zero_point.item(),
            by_rows is not None,
            bias,
            last,
        )

    def _behind_transposition(self, matrix: str) -> tuple[str, bool]:
        """Return a matrix before it was transposed, and whether it was; one of other dimensions than two never is."""
        node = self.makers.get(matrix)
        if node is None or node.op_type != "Transpose" or [list(each.ints) for each in node.attribute] != [[1, 0]]:
            return matrix, False
        return node.input[0], True

    def _by_rows(self, scaled: str, node: onnx.NodeProto) -> tuple[str, onnx.NodeProto] | None:
        """Return rows before they were divided by their largest numbers, and the product once it has these again."""
        division = self.makers.get(scaled)
        if division is None or division.op_type != "Div":
            return None
        given, largest = division.input
        maximum = self.makers.get(largest)
        if maximum is None or maximum.op_type != "ReduceMax" or not self._is_of_rows(maximum):
            return None
        size = self.makers.get(maximum.input[0])
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
        return keeps and is_known and self.values(maximum.input[1]).tolist() == [-1]

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
        users = self.users[output]
        return users[0] if len(users) == 1 and output not in self._outputs else None
