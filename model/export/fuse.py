"""Fewer, larger nodes: what the exporter leaves apart and ONNX Runtime does not join by itself.

A decode step of a small model is many small nodes, each of which costs microseconds before it computes anything.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

ATTENTION = "GroupQueryAttention"


def fuse_graph(path: Path) -> None:
    """Rewrite a float graph in place: products of one input become one product.

    Those are query, key and value of a self-attention, and the two of a gated feed-forward.
    """
    model = onnx.load(path)
    _Fusion(model.graph).run()
    onnx.checker.check_model(model, full_check=False)
    onnx.save(model, path)


@dataclass
class _Linear:
    """A product with a constant matrix, and the addition of a bias if there is one."""

    product: onnx.NodeProto
    addition: onnx.NodeProto | None

    @property
    def output(self) -> str:
        return (self.addition or self.product).output[0]

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        return [self.product] if self.addition is None else [self.product, self.addition]


class _Fusion:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.weights = {tensor.name: tensor for tensor in graph.initializer}
        self.users: dict[str, list[onnx.NodeProto]] = defaultdict(list)
        for node in graph.node:
            for name in node.input:
                self.users[name].append(node)

    def run(self) -> None:
        alike: dict[str, list[_Linear]] = defaultdict(list)
        for node in self.graph.node:
            if node.op_type == "MatMul" and self._is_matrix(node.input[1]):
                alike[node.input[0]].append(_Linear(node, self._bias_of(node)))
        for linears in alike.values():
            if len(linears) in {2, 3}:  # a source's keys and values of all layers stay apart: they are outputs
                self._join(linears)
        used = {name for node in self.graph.node for name in node.input}
        for tensor in [tensor for tensor in self.graph.initializer if tensor.name not in used]:
            self.graph.initializer.remove(tensor)

    def _is_matrix(self, name: str) -> bool:
        return name in self.weights and len(self.weights[name].dims) == 2

    def _bias_of(self, product: onnx.NodeProto) -> onnx.NodeProto | None:
        """Return the addition of a constant vector that alone uses a product."""
        users = self.users[product.output[0]]
        if len(users) != 1 or users[0].op_type != "Add":
            return None
        other = next(name for name in users[0].input if name != product.output[0])
        return users[0] if other in self.weights and len(self.weights[other].dims) == 1 else None

    def _join(self, linears: list[_Linear]) -> None:
        """Put one product, one addition if any of them has one, and what parts their answers in their place."""
        name = linears[0].output
        inputs = [linears[0].product.input[0], self._constant(f"{name}_weights", self._matrices(linears))]
        joined = helper.make_node("MatMul", inputs, [f"{name}_product"])
        nodes = [joined]
        if any(linear.addition for linear in linears):
            bias = self._constant(f"{name}_biases", np.concatenate([self._vector(linear) for linear in linears]))
            nodes.append(helper.make_node("Add", [joined.output[0], bias], [f"{name}_sum"]))
        attention = self._attention_of(linears)
        if attention is not None:  # it takes all three side by side, and two empty inputs, as its schema allows
            attention.input[0], attention.input[1], attention.input[2] = nodes[-1].output[0], "", ""
        else:
            widths = np.array([self._width(linear) for linear in linears], np.int64)
            parts = [nodes[-1].output[0], self._constant(f"{name}_widths", widths)]
            nodes.append(helper.make_node("Split", parts, [linear.output for linear in linears], axis=-1))
        place = next(index for index, node in enumerate(self.graph.node) if node is linears[0].product)
        for offset, node in enumerate(nodes):
            self.graph.node.insert(place + offset, node)
        for linear in linears:
            for node in linear.nodes:
                self.graph.node.remove(node)

    def _attention_of(self, linears: list[_Linear]) -> onnx.NodeProto | None:
        """Return the attention whose query, key and value these are and nothing else."""
        outputs = [linear.output for linear in linears]
        users = [user for output in outputs for user in self.users[output]]
        is_one = len(users) == len(outputs) and all(user is users[0] for user in users)
        is_attention = is_one and users[0].op_type == ATTENTION and list(users[0].input[:3]) == outputs
        return users[0] if is_attention else None

    def _matrices(self, linears: list[_Linear]) -> NDArray[np.generic]:
        return np.concatenate([numpy_helper.to_array(self.weights[linear.product.input[1]]) for linear in linears], 1)

    def _vector(self, linear: _Linear) -> NDArray[np.generic]:
        if linear.addition is None:
            weight = numpy_helper.to_array(self.weights[linear.product.input[1]])
            return np.zeros(weight.shape[1], weight.dtype)
        bias = next(name for name in linear.addition.input if name != linear.product.output[0])
        return numpy_helper.to_array(self.weights[bias])

    def _width(self, linear: _Linear) -> int:
        return int(self.weights[linear.product.input[1]].dims[1])

    def _constant(self, name: str, values: NDArray[np.generic]) -> str:
        self.graph.initializer.append(numpy_helper.from_array(values, name))
        return name
