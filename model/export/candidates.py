"""The small graph that finds each row's likeliest tokens: what a beam search needs of a decoder's logits."""

from __future__ import annotations

from onnx import TensorProto, helper

from model.export.graph import Graph


def candidates_graph() -> Graph:
    """Return the graph: logits (B, vocab_size), count (1,) → log_probabilities, ids (B, count), best first."""
    graph = Graph()
    graph.inputs += [
        helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", "vocab_size"]),
        helper.make_tensor_value_info("count", TensorProto.INT64, [1]),
    ]
    graph.outputs += [
        helper.make_tensor_value_info("log_probabilities", TensorProto.FLOAT, ["rows", "candidates"]),
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows", "candidates"]),
    ]
    graph.add_node("LogSoftmax", ["logits"], ["all_log_probabilities"], axis=-1)
    graph.add_node("TopK", ["all_log_probabilities", "count"], ["log_probabilities", "ids"], axis=-1)
    return graph
