"""An encoder's graph in operators of the ONNX standard alone, as other runtimes than ONNX Runtime compute them.

Packages have operators of ONNX Runtime's own: attention of ragged rows, and products of 8-bit integers. Here attention
becomes products and a softmax under a mask, and a product becomes one of floats with the same 8-bit weights, so that
whoever runs it chooses how to multiply. What it answers differs from the package's own graph by rounding alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from service.engine.onnx_nodes import drop_unused, makers_of, users_of

LEAST = -1e9  # what is added where a token does not look: a softmax of it is 0 in float32 and in bfloat16


class NotStandard(ValueError):
    """A graph has an operator for which there is no standard form here."""


def standard_graph(path: Path) -> bytes:
    """Read an encoder's graph, and write it with standard operators; weights that lie beside it stay there.

    Raises `NotStandard`, naming the operator, for what has no such form: attention to a past, weights in blocks. Heads
    that turn in part only (`rotary_dim`) are written as if they turned whole, and no runtime takes that graph.
    """
    return _Rewrite(onnx.load(path, load_external_data=False)).written()


class _Rewrite:
    """One graph being rewritten; new nodes are collected in order, so the graph stays sorted."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}
        self._values: set[str] = set()  # made by the nodes so far
        self._makers, self._users = makers_of(model.graph), users_of(model.graph)
        self._done: set[int] = set()  # nodes that another's standard form stands for, too
        self._rewritten: Mapping[str, Callable[[onnx.NodeProto], None]] = {
            "GroupQueryAttention": self._attention,
            "MatMulIntegerToFloat": self._product,
        }

    def written(self) -> bytes:
        graph = self._model.graph
        for node in graph.node:
            if id(node) in self._done:
                continue
            if node.op_type in self._rewritten:
                self._rewritten[node.op_type](node)
            elif node.domain or not onnx.defs.has(node.op_type):
                raise NotStandard(f"{node.op_type} has no standard form here")
            else:
                self._nodes.append(node)
        del graph.node[:]
        graph.node.extend(self._nodes)
        graph.initializer.extend(self._constants.values())
        drop_unused(graph)
        content: bytes = self._model.SerializeToString()
        return content

    def _product(self, node: onnx.NodeProto) -> None:
        """Add x · W for what has x and W in integers: x as it was before, and W by its columns' scales."""
        quantized, matrix, _, scales = node.input[:4]
        bias, output = node.input[6] if len(node.input) > 6 else "", node.output[0]
        maker = self._makers.get(quantized)
        if maker is None or maker.op_type != "QuantizeLinear":
            raise NotStandard(f"MatMulIntegerToFloat of {quantized} has no standard form here")
        given: str = maker.input[0]
        if (by_rows := self._rows_of(given, output)) is not None:
            given, output = by_rows
        elif self._weight(maker.input[2]) == 0:
            # A ReLU before constant scales has no node: what is below 0 is below the zero point, if that is 0.
            given = self._node("Relu", [given], f"{quantized}_relu")
        weight = self._node("DequantizeLinear", [matrix, scales], f"{output}_matrix", axis=1)
        product = self._node("MatMul", [given, weight], f"{output}_product" if bias else output)
        if bias:
            self._node("Add", [product, bias], output)

    def _rows_of(self, scaled: str, product: str) -> tuple[str, str] | None:
        """Return what was divided by each row's scale, and what the product is called once it has it again.

        Neither division nor multiplication is needed for floats; none where scales are constants.
        """
        division, users = self._makers.get(scaled), self._users[product]
        if division is None or division.op_type != "Div" or [user.op_type for user in users] != ["Mul"]:
            return None
        given, scale = division.input
        if scale not in users[0].input:
            return None
        self._done.add(id(users[0]))
        return given, users[0].output[0]

    def _weight(self, name: str) -> NDArray[Any]:
        return numpy_helper.to_array(next(each for each in self._model.graph.initializer if each.name == name))

    def _attention(self, node: onnx.NodeProto) -> None:
        """Add softmax(q · kᵀ · scale + mask + bias) · v; B rows, T tokens, H query heads, K key/value heads."""
        inputs = dict(enumerate(node.input))
        asked = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        if inputs.get(3) or inputs.get(9) or "local_window_size" in asked:
            raise NotStandard("GroupQueryAttention to a past or in a window has no standard form here")
        output, heads, pairs = node.output[0], asked["num_heads"], asked["kv_num_heads"]
        query, key, value = self._by_heads(node, heads, pairs)
        if asked.get("do_rotary"):
            query, key = (self._turned(each, *(inputs[place] for place in (6, 7, 8))) for each in (query, key))
        key, value = (self._repeated(each, pairs, heads // pairs) for each in (key, value))
        across = self._node("Transpose", [key], f"{output}_across", perm=[0, 1, 3, 2])
        logits = self._node("MatMul", [query, across], f"{output}_logits")
        scale = self._constant(f"{output}_scale", np.float32(asked["scale"]))
        logits = self._node("Mul", [logits, scale], f"{output}_scaled")
        masks = [self._mask(inputs[5], inputs[6], is_causal=bool(asked.get("causal", 1))), inputs.get(10, "")]
        for place, mask in enumerate(filter(None, masks)):
            logits = self._node("Add", [logits, mask], f"{output}_masked_{place}")
        weights = self._node("Softmax", [logits], f"{output}_weights", axis=-1)
        mixed = self._node("MatMul", [weights, value], f"{output}_mixed")
        mixed = self._node("Transpose", [mixed], f"{output}_tokens", perm=[0, 2, 1, 3])
        self._node("Reshape", [mixed, self._integers(0, 0, -1)], output)

    def _by_heads(self, node: onnx.NodeProto, heads: int, pairs: int) -> list[str]:
        """Return query (B, H, T, D), key and value (B, K, T, D), which come as one (B, T, (H + 2K)·D), or as three."""
        output, given = node.output[0], [name for name in node.input[:3] if name]
        counts = [heads, pairs, pairs] if len(given) == 3 else [heads + 2 * pairs]
        parts = []
        for place, (name, count) in enumerate(zip(given, counts, strict=True)):
            split = self._node("Reshape", [name, self._integers(0, 0, count, -1)], f"{output}_by_heads_{place}")
            parts.append(self._node("Transpose", [split], f"{output}_heads_{place}", perm=[0, 2, 1, 3]))
        if len(parts) == 3:
            return parts
        names = [f"{output}_{each}" for each in ("query", "key", "value")]
        self._nodes.append(helper.make_node("Split", [*parts, self._integers(heads, pairs, pairs)], names, axis=1))
        return names

    def _turned(self, given: str, total_length: str, cos: str, sin: str) -> str:
        """Turn each pair of numbers, one of either half, by its position's angle (RoFormer, Su et al. 2021)."""
        zero, one = self._integers(0), self._integers(1)
        length = self._node("Unsqueeze", [total_length, zero], "standard_length")
        length = self._node("Cast", [length], "standard_length_int64", to=onnx.TensorProto.INT64)
        angles = [self._node("Slice", [each, zero, length, zero, one], f"{each}_of_tokens") for each in (cos, sin)]
        halves = [f"{given}_first", f"{given}_second"]
        self._nodes.append(helper.make_node("Split", [given], halves, axis=-1, num_outputs=2))
        (first, second), (c, s) = halves, angles
        across = [self._node("Mul", [half, c], f"{half}_across") for half in (first, second)]
        up = [self._node("Mul", [half, s], f"{half}_up") for half in (first, second)]
        left = self._node("Sub", [across[0], up[1]], f"{given}_left")
        right = self._node("Add", [across[1], up[0]], f"{given}_right")
        return self._node("Concat", [left, right], f"{given}_turned", axis=-1)

    def _repeated(self, given: str, pairs: int, times: int) -> str:
        """Return keys or values (B, K, T, D) once for each query head that shares them: (B, H, T, D)."""
        if times == 1:
            return given
        one = self._node("Unsqueeze", [given, self._integers(2)], f"{given}_one")
        several = self._node("Expand", [one, self._integers(1, 1, times, 1, 1)], f"{given}_several")
        shape = self._node("Shape", [given], f"{given}_shape")
        ends = self._node("Slice", [shape, self._integers(2), self._integers(4)], f"{given}_ends")
        wanted = self._node("Concat", [self._integers(0, pairs * times), ends], f"{given}_wanted", axis=0)
        return self._node("Reshape", [several, wanted], f"{given}_repeated")

    def _mask(self, last_positions: str, total_length: str, *, is_causal: bool) -> str:
        """Return what is added to the logits: `LEAST` where a row has no token, or where one lies ahead."""
        zero, one = (self._constant(f"standard_{name}", np.int32(name == "one")) for name in ("zero", "one"))
        places = self._node("Range", [zero, total_length, one], "standard_places")
        last = self._node("Unsqueeze", [last_positions, self._integers(1, 2, 3)], "standard_last")
        sees = self._node("LessOrEqual", [places, last], "standard_sees")
        if is_causal:
            rows = self._node("Unsqueeze", [places, self._integers(1)], "standard_rows")
            behind = self._node("LessOrEqual", [places, rows], "standard_behind")
            sees = self._node("And", [sees, behind], "standard_sees_behind")
        shown, hidden = (self._constant(f"standard_{x}", np.float32(x)) for x in (0.0, LEAST))
        return self._node("Where", [sees, shown, hidden], f"{sees}_mask")

    def _node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node unless its output is there; returns the output's name."""
        if output not in self._values:
            self._values.add(output)
            self._nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def _integers(self, *values: int) -> str:
        return self._constant(f"standard_{'_'.join(map(str, values))}", np.array(values, np.int64))

    def _constant(self, name: str, values: NDArray[Any] | np.generic) -> str:
        self._constants.setdefault(name, numpy_helper.from_array(np.asarray(values), name))
        return name
