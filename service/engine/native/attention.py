"""Attention as graphs have it, to a KV cache and without one, and the node of ours that stands for it."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

import onnx
from onnx import helper, numpy_helper

DOMAIN = "trifold"  # of our operators
BIAS = 9  # which input of ours it is
# Inputs of a graph that say whose each row is, and whose source it sees; they may be left out.
SLOTS, SOURCE_SLOTS = "attention_slots", "attention_source_slots"
SOURCE = "cross_"  # how names of inputs begin that are a source's keys and values: see `model.package.inputs`
# What `attention_operator.cpp` takes: multiples of this width up to that, and so many query heads for one key head.
WIDTH_UNIT, MAX_HEAD_WIDTH, MAX_SHARING = 16, 256, 16
KNOWN_ATTRIBUTES = {"num_heads", "kv_num_heads", "scale", "do_rotary", "local_window_size", "causal"}


def own_attention(node: onnx.NodeProto, inputs: Mapping[str, onnx.TypeProto.Tensor]) -> onnx.NodeProto | None:
    """Return the node of ours that stands for an attention, if it is to a cache and of a form that ours has.

    `inputs` are those of its graph, of which the past is one. The node's last input, the slots, is left out.
    """
    past_key, past_value = [*node.input, *[""] * 5][3:5]
    past, attributes = inputs.get(past_key), _attributes(node)
    if past is None or past_value not in inputs or past.elem_type != onnx.TensorProto.FLOAT or not _is_known(node):
        return None
    if len(past.shape.dim) != 4 or len(node.output) != 3 or not attributes.get("causal", 1):
        return None
    width = past.shape.dim[3].dim_value
    if not takes_width(width):
        return None
    if attributes["num_heads"] > MAX_SHARING * attributes["kv_num_heads"]:
        return None
    return _own(
        "Attention",
        node,
        [*_inputs(node), ""],
        node.output,
        width=width,
        is_to_source=int(past_key.startswith(SOURCE)),
        scale=attributes.get("scale") or 1 / math.sqrt(width),
    )


def takes_width(width: int) -> bool:
    """Tell whether heads of a width, in numbers, can be attended to a cache by ours; 0 is one that is not known."""
    return 0 < width <= MAX_HEAD_WIDTH and width % WIDTH_UNIT == 0


HIDDEN = -1e30  # added to a score, and no weight is left

# The nodes of a bias that falls with the distance of tokens, the last first: `model.layers.relative.LinearBias`.
LINEAR_BIAS = ("Mul", "Cast", "Unsqueeze", "Abs", "Sub")


def slopes_behind(
    bias: str, makers: Mapping[str, onnx.NodeProto], weights: Mapping[str, onnx.TensorProto]
) -> str | None:
    """Return the name of what distances are multiplied by to make a bias, (heads, 1, 1), if it is made so.

    Ours multiplies distances itself: of 8,000 tokens and 12 heads such a bias has 3 GB.
    """
    made = _makers_of(bias, LINEAR_BIAS, makers)
    if made is None:
        return None
    slopes: str = made[0].input[1]
    return slopes if slopes in weights and list(weights[slopes].dims[1:]) == [1, 1] else None


# The same of a bias that is 0 for tokens near enough and the least number for others: `model.export.attention`.
WINDOW_BIAS = ("Unsqueeze", "Unsqueeze", "Where", "LessOrEqual", "Abs", "Sub")


def see_only_near(
    own: onnx.NodeProto, makers: Mapping[str, onnx.NodeProto], weights: Mapping[str, onnx.TensorProto]
) -> None:
    """Let a node of ours look at the tokens of a window itself, if all that its bias does is to hide the others.

    Of 8,000 tokens such a bias has 0.3 GB, and what it is made of three times as much; and ours then computes nothing
    for what is hidden.
    """
    if own.op_type != "RaggedAttention" or _attributes(own)["is_causal"]:
        return
    made = _makers_of(own.input[BIAS], WINDOW_BIAS, makers)
    if made is None:
        return
    hides, is_near = made[2], made[3]
    seen, hidden, reach = (weights.get(name) for name in (*hides.input[1:3], is_near.input[1]))
    if seen is None or hidden is None or reach is None:
        return
    if numpy_helper.to_array(seen).any() or numpy_helper.to_array(hidden).max() > HIDDEN:
        return
    own.input[BIAS] = ""
    window = next(each for each in own.attribute if each.name == "window")
    window.i = 2 * int(numpy_helper.to_array(reach)) + 1


def _makers_of(
    name: str, operators: Sequence[str], makers: Mapping[str, onnx.NodeProto]
) -> list[onnx.NodeProto] | None:
    """Return the nodes that make a value, each from the first input of the one before, if they are these operators."""
    made: list[onnx.NodeProto] = []
    for operator in operators:
        node = makers.get(name)
        if node is None or node.op_type != operator:
            return None
        made.append(node)
        name = node.input[0]
    return made


def is_to_source(own: onnx.NodeProto) -> bool:
    """Tell whether a node of ours attends to a source."""
    return bool(_attributes(own)["is_to_source"])


def own_ragged_attention(node: onnx.NodeProto, used: Container[str]) -> onnx.NodeProto | None:
    """Return the node of ours that stands for an attention of rows of 32-bit floats to themselves, which keeps nothing.

    `used`: the names of what anybody reads.
    """
    attributes = _attributes(node)
    if any(node.input[3:5]) or not _is_known(node) or any(name in used for name in node.output[1:]):
        return None
    is_causal, scale = attributes.get("causal", 1), attributes.get("scale", 0.0)
    if attributes.get("local_window_size", -1) > 0 and not is_causal:
        return None
    return _own("RaggedAttention", node, _inputs(node), node.output[:1], is_causal=is_causal, scale=scale)


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {each.name: helper.get_attribute_value(each) for each in node.attribute}


def _is_known(node: onnx.NodeProto) -> bool:
    """Tell whether ours has all that an attention is told, but for its sizes."""
    positions, _, sink = [*node.input, *[""] * 12][9:12]
    return not positions and not sink and _attributes(node).keys() <= KNOWN_ATTRIBUTES


def _inputs(node: onnx.NodeProto) -> list[str]:
    """Return the inputs of ours, without slots."""
    *others, cosines, sines, _, bias = [*node.input, *[""] * 11][:11]
    turns = _attributes(node).get("do_rotary")
    return [*others, *([cosines, sines] if turns else ["", ""]), bias]


def _own(kind: str, node: onnx.NodeProto, given: list[str], made: Sequence[str], **attributes: Any) -> onnx.NodeProto:
    told = _attributes(node)
    window = max(0, told.get("local_window_size", -1))
    heads, kv_heads = told["num_heads"], told["kv_num_heads"]
    return helper.make_node(
        kind, given, made, domain=DOMAIN, heads=heads, kv_heads=kv_heads, window=window, **attributes
    )
