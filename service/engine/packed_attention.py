"""An encoder's graph for a device, with attention that takes rows one behind the other as they lie in memory.

GroupQueryAttention parts query, key and value from each other, and puts key and value into a cache that an encoder has
not; on a device that takes seven times as long as attention itself. PackedMultiHeadAttention reads them where their
products leave them. It knows texts by where each begins, without padding between them; so what pads a row is called a
text of its own, which nobody reads.

Two additions go, too. A key's bias adds the same to all logits of a query, which no softmax shows; and the weights that
a value's bias is summed by are 1 together, so it is added behind the next product, as that has a bias anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from service.engine.arrays import Array
from service.engine.onnx_nodes import drop_unused, makers_of, users_of

MICROSOFT = "com.microsoft"
WIDTH_UNIT, MAX_HEAD_WIDTH = 8, 256  # of heads, as flash attention takes them
BIAS_OF_NORM = 4  # which input of a norm that adds first
KNOWN = {"num_heads", "kv_num_heads", "scale", "causal"}  # what an attention may be told
STARTS, PLACES, SHAPE = "packed_starts", "packed_places", "packed_shape_of_rows"
INT32_ZERO = helper.make_tensor("value", onnx.TensorProto.INT32, [1], [0])


def packed_graph(path: Path) -> bytes | None:
    """Read an encoder's graph and write it so; None if there is no attention in it that could be.

    Weights that lie beside the graph stay there, but for those that are parted.
    """
    return _Rewrite(onnx.load(path, load_external_data=False), path.resolve().parent).written()


@dataclass(frozen=True)
class _Attention:
    """An attention whose query, key and value are one product, (B, T, 3 · H · D)."""

    node: onnx.NodeProto
    product: onnx.NodeProto
    addition: onnx.NodeProto | None  # of the biases of query, key and value
    told: Mapping[str, Any]  # its attributes

    @property
    def made(self) -> list[onnx.NodeProto]:
        """What makes query, key and value."""
        return [self.product, *([] if self.addition is None else [self.addition])]


class _Rewrite:
    """One graph being rewritten."""

    def __init__(self, model: onnx.ModelProto, folder: Path) -> None:
        self._graph, self._model, self._folder = model.graph, model, str(folder)
        self._outputs = {each.name for each in model.graph.output}
        self._weights = {each.name: each for each in model.graph.initializer}
        self._makers, self._users = makers_of(model.graph), users_of(model.graph)

    def written(self) -> bytes | None:
        found = [self._attention(node) for node in self._graph.node if node.op_type == "GroupQueryAttention"]
        attentions = [attention for attention in found if attention is not None]
        attentions = [each for each in attentions if self._sizes(each) == self._sizes(attentions[0])]
        if not attentions:
            return None
        replaced: dict[int, list[onnx.NodeProto]] = {}
        texts = self._texts(attentions[0])
        for attention in attentions:
            replaced |= {id(node): [] for node in attention.made}
            replaced[id(attention.node)] = self._packed(attention)
        replaced[id(attentions[0].node)] = [*texts, *replaced[id(attentions[0].node)]]
        nodes = [each for node in self._graph.node for each in replaced.get(id(node), [node])]
        del self._graph.node[:]
        self._graph.node.extend(nodes)
        drop_unused(self._graph)
        content: bytes = self._model.SerializeToString()
        return content

    def _attention(self, node: onnx.NodeProto) -> _Attention | None:
        """Return what is known of an attention, if it is of a form that can be packed."""
        told = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        inputs = [*node.input, *[""] * 12]
        if any(inputs[1:5]) or any(inputs[7:]) or told.get("causal", 1) or told.keys() - KNOWN:
            return None  # a past, angles to turn by, a bias, a window
        if told["num_heads"] != told["kv_num_heads"] or any(map(self._is_read, node.output[1:])):
            return None
        maker, addition = self._makers.get(inputs[0]), None
        if maker is not None and maker.op_type == "Add" and maker.input[1] in self._weights:
            addition, maker = maker, self._makers.get(maker.input[0])
        if maker is None or maker.op_type != "MatMul" or maker.input[1] not in self._weights:
            return None
        attention = _Attention(node, maker, addition, told)
        names = [each.output[0] for each in attention.made]
        if any(len(self._users[name]) > 1 or name in self._outputs for name in names):
            return None
        width = self._weights[maker.input[1]].dims[1] // (3 * told["num_heads"])
        return None if width % WIDTH_UNIT or width > MAX_HEAD_WIDTH else attention

    def _is_read(self, name: str) -> bool:
        return bool(name) and (name in self._outputs or bool(self._users[name]))

    def _sizes(self, attention: _Attention) -> object:
        """Return what all that are packed have in common: whose lengths they go by, and how wide they are."""
        return list(attention.node.input[5:7]), list(self._weights[attention.product.input[1]].dims)

    def _values(self, name: str) -> Array:
        values: Array = numpy_helper.to_array(self._weights[name], self._folder)
        return values

    def _texts(self, attention: _Attention) -> list[onnx.NodeProto]:
        """Return what makes `STARTS`, where each row's text and each row's padding begins, (2 · B + 1,), and `PLACES`.

        Of the latter, (2 · B, T), flash attention takes the shape alone; what goes by its numbers, as old devices may,
        answers wrongly, which the comparison before the first request shows (`fastest.py`). `SHAPE` is (B, T, H · D).
        """
        last_positions, length = attention.node.input[5:7]
        given, weight = attention.product.input[:2]
        one, zero = self._constant("one", np.int32(1)), self._constant("zero", np.zeros(1, np.int32))
        axis, along = self._integers(1), self._constant("along", np.int64(0))
        width = self._integers(self._weights[weight].dims[1] // 3)
        return [
            helper.make_node("Add", [last_positions, one], ["packed_lengths"]),
            helper.make_node("Sub", [length, "packed_lengths"], ["packed_rests"]),
            helper.make_node("Unsqueeze", ["packed_lengths", axis], ["packed_lengths_column"]),
            helper.make_node("Unsqueeze", ["packed_rests", axis], ["packed_rests_column"]),
            helper.make_node("Concat", ["packed_lengths_column", "packed_rests_column"], ["packed_pairs"], axis=1),
            helper.make_node("Reshape", ["packed_pairs", self._integers(-1)], ["packed_texts"]),
            helper.make_node("CumSum", ["packed_texts", along], ["packed_ends"]),
            helper.make_node("Concat", [zero, "packed_ends"], [STARTS], axis=0),
            helper.make_node("Shape", [given], ["packed_shape"]),
            helper.make_node("Slice", ["packed_shape", self._integers(0), self._integers(2)], ["packed_rows"]),
            helper.make_node("Mul", ["packed_rows", self._integers(2, 1)], ["packed_places_shape"]),
            helper.make_node("ConstantOfShape", ["packed_places_shape"], [PLACES], value=INT32_ZERO),
            helper.make_node("Concat", ["packed_rows", width], [SHAPE], axis=0),
        ]

    def _packed(self, attention: _Attention) -> list[onnx.NodeProto]:
        """Return the products of query, key and value, each by itself, and the attention of them."""
        output, (given, weight) = attention.node.output[0], attention.product.input[:2]
        matrix = self._values(weight)
        biases = None if attention.addition is None else self._values(attention.addition.input[1])
        width = matrix.shape[1] // 3
        tokens = self._integers(-1, matrix.shape[0])
        nodes = [helper.make_node("Reshape", [given, tokens], [f"{output}_tokens"])]
        parts = []
        for place, name in enumerate(("query", "key", "value")):
            columns = slice(place * width, (place + 1) * width)
            weights = self._constant(f"{weight}_{name}", np.ascontiguousarray(matrix[:, columns]))
            nodes.append(helper.make_node("MatMul", [f"{output}_tokens", weights], [f"{output}_{name}"]))
            bias = None if biases is None else biases[columns]
            if bias is None or name == "key" or (name == "value" and self._move_on(output, bias)):
                parts.append(f"{output}_{name}")
                continue
            added = self._constant(f"{output}_{name}_bias", bias)
            nodes.append(helper.make_node("Add", [f"{output}_{name}", added], [f"{output}_{name}_sum"]))
            parts.append(f"{output}_{name}_sum")
        told = {name: value for name, value in attention.told.items() if name in {"num_heads", "scale"}}
        nodes.append(
            helper.make_node(
                "PackedMultiHeadAttention",
                [*parts, "", PLACES, STARTS],
                [f"{output}_packed"],
                domain=MICROSOFT,
                **told,
            )
        )
        return [*nodes, helper.make_node("Reshape", [f"{output}_packed", SHAPE], [output])]

    def _move_on(self, output: str, bias: Array) -> bool:
        """Add a value's bias to that of the norm behind the next product, if there is one; return whether there was."""
        (product,) = self._users[output] if len(self._users[output]) == 1 else (None,)
        if product is None or product.op_type != "MatMul" or product.input[1] not in self._weights:
            return False
        users = self._users[product.output[0]]
        if len(users) != 1 or users[0].op_type != "SkipLayerNormalization" or len(users[0].input) <= BIAS_OF_NORM:
            return False
        norm = users[0]
        if norm.input[1] != product.output[0] or norm.input[BIAS_OF_NORM] not in self._weights:
            return False
        matrix, own = self._values(product.input[1]), self._values(norm.input[BIAS_OF_NORM])
        moved = own.astype(np.float32) + bias.astype(np.float32) @ matrix.astype(np.float32)
        norm.input[BIAS_OF_NORM] = self._constant(f"{output}_bias_behind", moved.astype(own.dtype))
        return True

    def _integers(self, *values: int) -> str:
        return self._constant("_".join(map(str, values)), np.array(values, np.int64))

    def _constant(self, name: str, values: Array | np.generic) -> str:
        name = f"packed_{name}"
        if name not in self._weights:
            self._weights[name] = numpy_helper.from_array(np.asarray(values), name)
            self._graph.initializer.append(self._weights[name])
        return name
