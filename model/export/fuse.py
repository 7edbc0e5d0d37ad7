"""Fewer, larger nodes: what the exporter leaves apart and ONNX Runtime does not join by itself.

A decode step of a small model is many small nodes, each of which costs microseconds before it computes anything.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

ATTENTION = "GroupQueryAttention"


def fuse_graph(path: Path) -> None:
    """Rewrite a float graph in place: query, key and value of each self-attention become one product."""
    model = onnx.load(path)
    _Fusion(model.graph).run()
    onnx.checker.check_model(model, full_check=False)
    onnx.save(model, path)


class _Fusion:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.producers = {output: node for node in graph.node for output in node.output}
        self.weights = {tensor.name: tensor for tensor in graph.initializer}

    def run(self) -> None:
        for node in [node for node in self.graph.node if node.op_type == ATTENTION]:
            # In cross-attention keys and values come from elsewhere.
            if all(name in self.producers for name in node.input[:3]):
                self._pack(node)
        used = {name for node in self.graph.node for name in node.input}
        for tensor in [tensor for tensor in self.graph.initializer if tensor.name not in used]:
            self.graph.initializer.remove(tensor)

    def _pack(self, attention: onnx.NodeProto) -> None:
        """Give the attention one input of shape (B, T, (H + 2K)·D) and two empty ones, as its schema allows."""
        sums = [self.producers[name] for name in attention.input[:3]]
        products = [self.producers[node.input[0]] for node in sums]
        name = attention.output[0]
        weight = self._concatenated([node.input[1] for node in products], f"{name}_qkv_weight")
        bias = self._concatenated([node.input[1] for node in sums], f"{name}_qkv_bias")
        nodes = [
            helper.make_node("MatMul", [products[0].input[0], weight], [f"{name}_qkv_product"]),
            helper.make_node("Add", [f"{name}_qkv_product", bias], [f"{name}_qkv"]),
        ]
        place = next(index for index, node in enumerate(self.graph.node) if node.output[0] == name)
        for offset, node in enumerate(nodes):
            self.graph.node.insert(place + offset, node)
        attention.input[0], attention.input[1], attention.input[2] = f"{name}_qkv", "", ""
        for node in sums + products:
            self.graph.node.remove(node)

    def _concatenated(self, names: list[str], new_name: str) -> str:
        arrays = [numpy_helper.to_array(self.weights[name]) for name in names]
        self.graph.initializer.append(numpy_helper.from_array(np.concatenate(arrays, axis=-1), new_name))
        return new_name
