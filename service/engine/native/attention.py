"""Attention to a KV cache as graphs have it, and the node of ours that stands for it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import onnx
from onnx import helper

DOMAIN = "trifold"  # of our operators
SLOTS = "attention_slots"  # a graph's input that says whose row each is; it may be left out
SOURCE = "cross_"  # how names of inputs begin that are a source's keys and values: see `model.package.inputs`
# What `attention_operator.cpp` takes: multiples of this width up to that, and so many query heads for one key head.
WIDTH_UNIT, GREATEST_WIDTH, MOST_SHARING = 16, 256, 16
KNOWN_ATTRIBUTES = {"num_heads", "kv_num_heads", "scale", "do_rotary", "local_window_size"}


def own_attention(node: onnx.NodeProto, inputs: Mapping[str, onnx.TypeProto.Tensor]) -> onnx.NodeProto | None:
    """Return the node of ours that stands for an attention, if it is to a cache and of a form that ours has.

    `inputs` are those of its graph, of which the past is one. The node's last input, the slots, is left out.
    """
    query, key, value, past_key, past_value, *others = [*node.input, *[""] * 12][:12]
    last_positions, total_length, cosines, sines, positions, bias, sink = others
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    past = inputs.get(past_key)
    if past is None or past_value not in inputs or past.elem_type != onnx.TensorProto.FLOAT or positions or sink:
        return None
    if len(past.shape.dim) != 4 or not attributes.keys() <= KNOWN_ATTRIBUTES or len(node.output) != 3:
        return None
    heads, kv_heads, width = attributes["num_heads"], attributes["kv_num_heads"], past.shape.dim[3].dim_value
    if not width or width % WIDTH_UNIT or width > GREATEST_WIDTH or heads > MOST_SHARING * kv_heads:
        return None
    if not attributes.get("do_rotary"):
        cosines = sines = ""
    return helper.make_node(
        "Attention",
        [query, key, value, past_key, past_value, last_positions, total_length, cosines, sines, bias, ""],
        node.output,
        domain=DOMAIN,
        heads=heads,
        kv_heads=kv_heads,
        width=width,
        is_to_source=int(past_key.startswith(SOURCE)),
        window=max(0, attributes.get("local_window_size", -1)),
        scale=attributes.get("scale") or 1 / math.sqrt(width),
    )
