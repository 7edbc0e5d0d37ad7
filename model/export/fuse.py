"""Fewer, larger nodes: products of one input become one product.

A decode step of a small model is many small nodes, each of which costs microseconds before it computes anything.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from model.export.graph import Array, Graph, Users, Weight

ATTENTION = "GroupQueryAttention"


def fuse(graph: Graph) -> None:
    """Join query, key and value of each self-attention, and the two products of each gated feed-forward."""
    users = graph.users()
    alike: dict[str, list[_Linear]] = defaultdict(list)
    for node in graph.nodes:
        if node.op_type == "MatMul" and graph.is_matrix(node.input[1]):
            alike[node.input[0]].append(_Linear(graph, node, graph.bias_behind(node, users)))
    replaced: dict[int, list[onnx.NodeProto]] = {}  # what stands where a node stood
    for linears in alike.values():
        if len(linears) in {2, 3}:  # a source's keys and values of all layers stay apart: they are outputs
            replaced |= {id(node): [] for linear in linears for node in linear.nodes}
            replaced[id(linears[0].product)] = _joined(graph, linears, users)
    graph.nodes = [each for node in graph.nodes for each in replaced.get(id(node), [node])]
    graph.drop_unused()


@dataclass(frozen=True)
class _Linear:
    """A product with a constant matrix, and the addition of a bias if there is one."""

    graph: Graph
    product: onnx.NodeProto
    addition: onnx.NodeProto | None

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        return [self.product] if self.addition is None else [self.product, self.addition]

    @property
    def output(self) -> str:
        return self.nodes[-1].output[0]

    @property
    def matrix(self) -> Weight:
        return self.graph.weights[self.product.input[1]]

    def bias(self) -> Array:
        if self.addition is None:
            return np.zeros(self.matrix.shape[1], self.matrix.dtype)
        return self.graph.weights[self.addition.input[1]].read()


def _joined(graph: Graph, linears: list[_Linear], users: Users) -> list[onnx.NodeProto]:
    """Return one product, one addition if any of them has one, and what parts their answers."""
    name = linears[0].output
    matrices = [linear.matrix for linear in linears]
    widths = [matrix.shape[1] for matrix in matrices]
    graph.weights[f"{name}_weights"] = Weight(
        (matrices[0].shape[0], sum(widths)),
        matrices[0].dtype,
        lambda: np.concatenate([matrix.read().T for matrix in matrices]).T,  # in torch's order in memory
    )
    nodes = [helper.make_node("MatMul", [linears[0].product.input[0], f"{name}_weights"], [f"{name}_product"])]
    if any(linear.addition is not None for linear in linears):
        biases = graph.constant(f"{name}_biases", np.concatenate([linear.bias() for linear in linears]))
        nodes.append(helper.make_node("Add", [f"{name}_product", biases], [f"{name}_sum"]))
    attention = _attention_of(linears, users)
    if attention is None:
        sizes = graph.constant(f"{name}_widths", np.array(widths, np.int64))
        outputs = [linear.output for linear in linears]
        nodes.append(helper.make_node("Split", [nodes[-1].output[0], sizes], outputs, axis=-1))
    else:  # it takes all three side by side, and two empty inputs, as its schema allows
        attention.input[0], attention.input[1], attention.input[2] = nodes[-1].output[0], "", ""
    return nodes


def _attention_of(linears: list[_Linear], users: Users) -> onnx.NodeProto | None:
    """Return the attention whose query, key and value these are and nothing else."""
    outputs = [linear.output for linear in linears]
    found = [user for output in outputs for user in users[output]]
    attention = found[0]
    is_one = len(found) == len(outputs) and all(user is attention for user in found)
    if attention is None or not is_one or attention.op_type != ATTENTION:
        return None
    return attention if list(attention.input[:3]) == outputs else None
