"""Channels of like size between a norm and the products behind it: what constant scales need to be fine enough.

A few channels of a norm's output are far larger than all others, and one scale for all of them would leave those few
integers. So each channel is divided by a number of its own in the norm's weights, and the matrices' rows are multiplied
by it: the answer is the same (Xiao et al. 2023, "SmoothQuant", equation 4 with α = 0.5).
"""

from __future__ import annotations

import numpy as np
import onnx

from model.export.graph import Array, Graph, Product, Weight
from model.export.ranges import Ranges

NORMS = {"LayerNormalization", "SimplifiedLayerNormalization"}
LEAST = 1e-5  # keeps a channel that is always 0 from being divided by nothing


def smooth(graph: Graph, ranges: Ranges) -> Ranges:
    """Change weights so that what norms give to products has channels of like size; returns the ranges after that.

    Norms whose output goes elsewhere too, as into the sum around a block, stay as they are.
    """
    behind: dict[str, list[Product]] = {}
    for product in graph.products():
        behind.setdefault(product.given, []).append(product)
    users, smoothed = graph.users(), dict(ranges)
    for norm in graph.nodes:
        products = behind.get(norm.output[0], [])
        is_alone = len(products) == len(users[norm.output[0]]) and not any(each.is_transposed for each in products)
        if norm.op_type in NORMS and products and is_alone:
            scales = _scales(ranges[norm.output[0]].sizes, products)
            smoothed[norm.output[0]] = ranges[norm.output[0]].divided_by(scales)
            _divide(graph, norm, scales)
            for product in products:
                _multiply(graph, product, scales)
    return smoothed


def _scales(sizes: Array, products: list[Product]) -> Array:
    """Return each channel's divisor (K,): the root of its size over that of the weights it meets."""
    weights = np.max([np.abs(product.matrix.read()).max(axis=1) for product in products], axis=0)
    scales = np.sqrt(np.maximum(sizes, LEAST) / np.maximum(weights, LEAST))
    return (scales / scales.mean()).astype(np.float32)


def _divide(graph: Graph, norm: onnx.NodeProto, scales: Array) -> None:
    """Divide a norm's weight and bias."""
    for place, name in enumerate(norm.input[1:3], start=1):
        values = graph.weights[name].read()
        norm.input[place] = graph.constant(f"{norm.output[0]}_smooth_{place}", (values / scales).astype(values.dtype))


def _multiply(graph: Graph, product: Product, scales: Array) -> None:
    """Multiply a matrix's rows."""
    name, matrix = f"{product.node.output[0]}_smooth", product.matrix
    graph.weights[name] = Weight(matrix.shape, matrix.dtype, lambda: matrix.read() * scales[:, None])
    product.node.input[1] = name
