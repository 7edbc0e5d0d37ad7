"""Fewer, larger nodes: products of one input become one product.

A decode step of a small model is many small nodes, each of which costs microseconds before it computes anything.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper

from model.export.graph import MICROSOFT, Array, Graph, Part, Users, Weight

ATTENTION = "GroupQueryAttention"
NORMS = {  # and how they are called with the sum before them
    "LayerNormalization": "SkipLayerNormalization",
    "SimplifiedLayerNormalization": "SkipSimplifiedLayerNormalization",
}
PLAIN = {"LayerNormalization"}  # which shift, too


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


def fuse_norms(graph: Graph) -> None:
    """Join each norm with the sum before it, and with the bias of the product that is added.

    On a device that is one run over the memory in place of three. On a processor it is slower: it is not vectorised.
    """
    users = graph.users()
    makers = {output: node for node in graph.nodes for output in node.output}
    replaced: dict[int, list[onnx.NodeProto]] = {}
    for norm in graph.nodes:
        total = makers.get(norm.input[0]) if norm.op_type in NORMS else None
        if total is None or total.op_type != "Add" or id(total) in replaced:
            continue
        if graph.weights.keys() & set(total.input):  # a norm behind a product alone: the bias is no residual
            continue
        added = _sublayer(graph, total, makers, users)
        if added is not None:
            replaced |= {id(node): [] for node in (norm, added)}
            replaced[id(total)] = _joined_norm(norm, total, added, users)
            if added.op_type == "MatMul":
                replaced[id(added)] = [added]
    graph.nodes = [each for node in graph.nodes for each in replaced.get(id(node), [node])]
    graph.drop_unused()


def _sublayer(
    graph: Graph, total: onnx.NodeProto, makers: dict[str, onnx.NodeProto], users: Users
) -> onnx.NodeProto | None:
    """Return what made the summand that is a sublayer's answer: a product with a matrix, or the bias behind one."""
    for name in reversed(total.input):
        node = makers.get(name)
        if node is None or len(users[name]) > 1:
            continue
        product = makers.get(node.input[0]) if node.op_type == "Add" else node
        is_product = product is not None and product.op_type == "MatMul" and graph.is_matrix(product.input[1])
        if product is not None and is_product and (node is product or graph.bias_behind(product, users) is node):
            return node
    return None


def _joined_norm(
    norm: onnx.NodeProto, total: onnx.NodeProto, added: onnx.NodeProto, users: Users
) -> list[onnx.NodeProto]:
    """Return the norm that adds first; where the sum itself is wanted too it is one more output."""
    (residual,) = (name for name in total.input if name != added.output[0])
    product, bias = (added.input[0], added.input[1]) if added.op_type == "Add" else (added.output[0], "")
    scales = [norm.input[1], *(["" if len(norm.input) < 3 else norm.input[2]] if norm.op_type in PLAIN else [])]
    inputs = [residual, product, *scales, *([bias] if bias else [])]
    outputs = [norm.output[0], *(["", "", total.output[0]] if len(users[total.output[0]]) > 1 else [])]
    (epsilon,) = (attribute.f for attribute in norm.attribute if attribute.name == "epsilon")
    return [helper.make_node(NORMS[norm.op_type], inputs, outputs, domain=MICROSOFT, epsilon=epsilon)]


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
    def width(self) -> int:
        return self.matrix.shape[1]

    @property
    def matrix(self) -> Weight:
        return self.graph.weights[self.product.input[1]]

    @property
    def bias_name(self) -> str | None:
        return None if self.addition is None else self.addition.input[1]

    def bias(self) -> Array:
        if self.bias_name is None:
            return np.zeros(self.width, self.matrix.dtype)
        return self.graph.weights[self.bias_name].read()


def _joined(graph: Graph, linears: list[_Linear], users: Users) -> list[onnx.NodeProto]:
    """Return one product, one addition if any of them has one, and what parts their answers."""
    name, matrices = linears[0].output, [linear.matrix for linear in linears]
    widths = [linear.width for linear in linears]
    weight, biases = _names_joined(graph, linears)
    graph.weights[weight] = Weight(
        (matrices[0].shape[0], sum(widths)),
        matrices[0].dtype,
        lambda: np.concatenate([matrix.read().T for matrix in matrices]).T,  # in torch's order in memory
        tuple(Part(linear.product.input[1], linear.width) for linear in linears),
    )
    nodes = [helper.make_node("MatMul", [linears[0].product.input[0], weight], [f"{name}_product"])]
    if any(linear.addition is not None for linear in linears):
        joined = np.concatenate([linear.bias() for linear in linears])
        parts = tuple(Part(linear.bias_name, linear.width) for linear in linears)
        graph.weights[biases] = Weight(joined.shape, joined.dtype, lambda: joined, parts)
        nodes.append(helper.make_node("Add", [f"{name}_product", biases], [f"{name}_sum"]))
    attention = _attention_of(linears, users)
    if attention is None:
        sizes = graph.constant(f"{name}_widths", np.array(widths, np.int64))
        outputs = [linear.output for linear in linears]
        nodes.append(helper.make_node("Split", [nodes[-1].output[0], sizes], outputs, axis=-1))
    else:  # it takes all three side by side, and two empty inputs, as its schema allows
        attention.input[0], attention.input[1], attention.input[2] = nodes[-1].output[0], "", ""
    return nodes


def _names_joined(graph: Graph, linears: list[_Linear]) -> tuple[str, str]:
    """Return the names of a joined matrix and its biases: one for all layers that share them, which are stored once."""
    matrices = [linear.product.input[1] for linear in linears]
    for name, weight in graph.weights.items():
        if weight.parts and [part.name for part in weight.parts] == matrices:
            return name, f"{name.removesuffix('_weights')}_biases"
    return f"{linears[0].output}_weights", f"{linears[0].output}_biases"


def _attention_of(linears: list[_Linear], users: Users) -> onnx.NodeProto | None:
    """Return the attention whose query, key and value these are and nothing else."""
    outputs = [linear.output for linear in linears]
    found = [user for output in outputs for user in users[output]]
    attention = found[0]
    is_one = len(found) == len(outputs) and all(user is attention for user in found)
    if attention is None or not is_one or attention.op_type != ATTENTION:
        return None
    return attention if list(attention.input[:3]) == outputs else None
