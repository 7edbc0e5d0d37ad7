"""Small graphs that work on a device's memory where it is, so that a KV cache and its logits never leave it.

They know no model, so they are made once, and are files beside the engine (`service/engine/graphs`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto, helper

from model.export.graph import Graph

HALF, FLOAT, INT64 = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.INT64


def move_graph() -> Graph:
    """Return the graph: rows `origins` (n,) of source (m, width) to rows `targets` (n, 1) of target (r, width).

    With `moved` (r, width) bound to the target's memory nothing else in it is touched.
    """
    graph = _graph(
        {
            "source": (HALF, ["m", "width"]),
            "origins": (INT64, ["n"]),
            "target": (HALF, ["r", "width"]),
            "targets": (INT64, ["n", 1]),
        },
        {"moved": (HALF, ["r", "width"])},
    )
    graph.add_node("Gather", ["source", "origins"], ["rows"], axis=0)
    graph.add_node("ScatterND", ["target", "targets", "rows"], ["moved"])
    return graph


def rows_graph() -> Graph:
    """Return the graph: rows `origins` (n,) of source (m, width), as they are."""
    graph = _graph({"source": (HALF, ["m", "width"]), "origins": (INT64, ["n"])}, {"rows": (HALF, ["n", "width"])})
    graph.add_node("Gather", ["source", "origins"], ["rows"], axis=0)
    return graph


def logits_graph() -> Graph:
    """Return the graph: rows `origins` (n,) of logits (m, vocab_size) as float32."""
    graph = _graph(
        {"logits": (HALF, ["m", "vocab_size"]), "origins": (INT64, ["n"])}, {"rows": (FLOAT, ["n", "vocab_size"])}
    )
    graph.add_node("Gather", ["logits", "origins"], ["halves"], axis=0)
    graph.add_node("Cast", ["halves"], ["rows"], to=FLOAT)
    return graph


def likeliest_graph() -> Graph:
    """Return the graph: the likeliest token of each row of logits (n, vocab_size), `ids` (n,)."""
    graph = _graph({"logits": (HALF, ["n", "vocab_size"])}, {"ids": (INT64, ["n"])})
    graph.add_node("ArgMax", ["logits"], ["ids"], axis=-1, keepdims=0)
    return graph


def shortlist_graph() -> Graph:
    """Return the graph: the likeliest tokens of rows `origins` (n,) of logits (m, vocab_size), and what all weigh.

    In: temperatures (n, 1), count (1,). Out: best, ids (n, count), the logits in their order; masses (n, 1), of all
    weights exp((logit − highest) / temperature), and plain_masses (n, 1), the same at temperature 1.
    """
    graph = _graph(
        {
            "logits": (HALF, ["m", "vocab_size"]),
            "origins": (INT64, ["n"]),
            "temperatures": (FLOAT, ["n", 1]),
            "count": (INT64, [1]),
        },
        {
            "best": (FLOAT, ["n", "count"]),
            "ids": (INT64, ["n", "count"]),
            "masses": (FLOAT, ["n", 1]),
            "plain_masses": (FLOAT, ["n", 1]),
        },
    )
    axis = graph.constant("axis", np.array([-1], np.int64))
    graph.add_node("Gather", ["logits", "origins"], ["halves"], axis=0)
    graph.add_node("Cast", ["halves"], ["rows"], to=FLOAT)
    graph.add_node("TopK", ["rows", "count"], ["best", "ids"], axis=-1)
    graph.add_node("ReduceMax", ["rows", axis], ["highest"], keepdims=1)
    graph.add_node("Sub", ["rows", "highest"], ["below"])
    graph.add_node("Div", ["below", "temperatures"], ["scaled"])
    for exponents, masses in (("scaled", "masses"), ("below", "plain_masses")):
        graph.add_node("Exp", [exponents], [f"{masses}_of_each"])
        graph.add_node("ReduceSum", [f"{masses}_of_each", axis], [masses], keepdims=1)
    return graph


DEVICE_GRAPHS: dict[str, Callable[[], Graph]] = {
    "move": move_graph,
    "rows": rows_graph,
    "logits": logits_graph,
    "likeliest": likeliest_graph,
    "shortlist": shortlist_graph,
}

_Sizes = dict[str, tuple[int, list[str | int]]]


def _graph(inputs: _Sizes, outputs: _Sizes) -> Graph:
    graph = Graph()
    for values, given in ((graph.inputs, inputs), (graph.outputs, outputs)):
        values += [helper.make_tensor_value_info(name, kind, sizes) for name, (kind, sizes) in given.items()]
    return graph
