"""Small graphs that work on a device's memory where it is, so that a KV cache and its logits never leave it.

They know no model, so they lie beside the engine (`service/engine/graphs`), where `onnx` is not needed to run them.
"""

from __future__ import annotations

from collections.abc import Callable

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


DEVICE_GRAPHS: dict[str, Callable[[], Graph]] = {
    "move": move_graph,
    "rows": rows_graph,
    "logits": logits_graph,
    "likeliest": likeliest_graph,
}

_Sizes = dict[str, tuple[int, list[str | int]]]


def _graph(inputs: _Sizes, outputs: _Sizes) -> Graph:
    graph = Graph()
    for values, given in ((graph.inputs, inputs), (graph.outputs, outputs)):
        values += [helper.make_tensor_value_info(name, kind, sizes) for name, (kind, sizes) in given.items()]
    return graph
