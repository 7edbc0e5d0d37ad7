"""Which node makes a value and which read it, and what a rewritten graph no longer needs."""

from __future__ import annotations

from collections import defaultdict

import onnx


def makers_of(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    """Return the node that makes each value."""
    return {name: node for node in graph.node for name in node.output if name}


def users_of(graph: onnx.GraphProto) -> dict[str, list[onnx.NodeProto]]:
    """Return the nodes that read each value, one twice if it reads it twice."""
    users: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            users[name].append(node)
    return users


def drop_unused(graph: onnx.GraphProto) -> None:
    """Drop the nodes and weights of a sorted graph that none of its outputs comes of."""
    needed = {output.name for output in graph.output}
    for place in reversed(range(len(graph.node))):
        if needed.isdisjoint(graph.node[place].output):
            del graph.node[place]
        else:
            needed.update(graph.node[place].input)
    for place in reversed(range(len(graph.initializer))):  # one by one, as a list of those that stay would copy them
        if graph.initializer[place].name not in needed:
            del graph.initializer[place]
