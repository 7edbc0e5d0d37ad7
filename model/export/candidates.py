"""The small graph that finds each row's likeliest tokens: what a beam search needs of a decoder's logits."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper

from model.export.graphs import OPSET, GraphFile

IR_VERSION = 10  # of the ONNX format; what torch's exporter writes with this opset


def export_candidates(path: Path) -> GraphFile:
    """Write the graph: logits (B, vocab_size), count (1,) → log_probabilities, ids (B, count), best first."""
    nodes = [
        helper.make_node("LogSoftmax", ["logits"], ["all_log_probabilities"], axis=-1),
        helper.make_node("TopK", ["all_log_probabilities", "count"], ["log_probabilities", "ids"], axis=-1),
    ]
    inputs, outputs = ["logits", "count"], ["log_probabilities", "ids"]
    graph = helper.make_graph(
        nodes,
        "candidates",
        [
            helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", "vocab_size"]),
            helper.make_tensor_value_info("count", TensorProto.INT64, [1]),
        ],
        [
            helper.make_tensor_value_info("log_probabilities", TensorProto.FLOAT, ["rows", "candidates"]),
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["rows", "candidates"]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path)
    return GraphFile(path, inputs, outputs)
