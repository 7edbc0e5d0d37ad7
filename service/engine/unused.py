"""What a rewritten graph no longer needs."""

from __future__ import annotations

import onnx


def drop_unused(graph: onnx.GraphProto) -> None:
    """Drop the nodes and weights of a sorted graph that none of its outputs comes of."""
    needed, nodes = {output.name for output in graph.output}, []
    for node in reversed(graph.node):
        if needed & set(node.output):
            nodes.append(node)
            needed |= set(node.input)
    weights = [each for each in graph.initializer if each.name in needed]
    for field, kept in ((graph.node, nodes[::-1]), (graph.initializer, weights)):
        del field[:]
        field.extend(kept)
