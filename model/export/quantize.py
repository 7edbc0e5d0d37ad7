"""Integer weights whose answers do not depend on the batch.

`int8`: weights of signed 8 bits with one scale per output column; activations of 8 bits with one scale per row, found
while running, so a row's result is the same whoever stands beside it: the products are summed in int32, exactly. (The
usual dynamic quantization takes one scale for the whole batch, and a loud row then coarsens its neighbours.)

`int8-blocks`, `int4-blocks`: one scale per block of each column, one operator per product, which quantizes activations
by row and block itself. Fastest with one row or few, slowest with many.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

ZERO_POINT = 128  # activations are stored as uint8 around it, which is what MatMulInteger is fastest with
LARGEST = 127
WORD_EMBEDDING = "embeddings.words.weight"  # its name in every architecture, and so in every graph
TINY = 1e-12  # keeps the scale of an all-zero column from being 0
MICROSOFT = "com.microsoft"  # the operator set that the products belong to


@dataclass(frozen=True)
class Blocks:
    """Weights in blocks of `size` along a column, of `bits` bits each."""

    bits: int
    size: int


BLOCKS = {"int8-blocks": Blocks(8, 128), "int4-blocks": Blocks(4, 32)}


def quantize_graph(path: Path, blocks: Blocks | None = None) -> None:
    """Rewrite a float32 graph in place: every product with a constant matrix, and the word embedding."""
    model = onnx.load(path)
    _Rewrite(model.graph, blocks).run()
    if not any(opset.domain == MICROSOFT for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    onnx.checker.check_model(model, full_check=False)
    onnx.save(model, path)


def quantize_columns(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return the 8-bit matrix and the scale of each column of `weight` (K, N): weight ≈ matrix · scales."""
    scales = np.maximum(np.abs(weight).max(axis=0), TINY) / LARGEST
    return np.rint(weight / scales).astype(np.int8), scales.astype(np.float32)


def quantize_blocks(weight: NDArray[np.float32], blocks: Blocks) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return `weight` (K, N) as MatMulNBits takes it: (N, blocks, bytes a block), and the scales (N · blocks,).

    Columns are filled with zeros to whole blocks; a value is stored with half its range added.
    """
    rows, columns = weight.shape
    count = -(-rows // blocks.size)
    padded = np.zeros((columns, count * blocks.size), np.float32)
    padded[:, :rows] = weight.T
    grouped = padded.reshape(columns, count, blocks.size)
    half = 2 ** (blocks.bits - 1)
    scales = np.maximum(np.abs(grouped).max(axis=-1), TINY) / (half - 1)
    values = (np.rint(grouped / scales[..., None]) + half).astype(np.uint8)
    if blocks.bits == 4:
        values = values[..., ::2] | (values[..., 1::2] << 4)
    return values, scales.astype(np.float32).ravel()


class _Rewrite:
    """One graph being rewritten; new nodes are collected in order, so the graph stays sorted."""

    def __init__(self, graph: onnx.GraphProto, blocks: Blocks | None) -> None:
        self.graph, self.blocks = graph, blocks
        self.weights = {tensor.name: tensor for tensor in graph.initializer}
        self.transposed = {
            node.output[0]: node.input[0]
            for node in graph.node
            if node.op_type == "Transpose" and node.input[0] in self.weights
        }
        self.nodes: list[onnx.NodeProto] = []
        self.quantized_inputs: dict[str, tuple[str, str]] = {}
        self.quantized_words: dict[str, tuple[str, str]] = {}

    def run(self) -> None:
        rewrite_product: Callable[[onnx.NodeProto], None] = (
            self._rewrite_by_rows if self.blocks is None else self._rewrite_by_blocks
        )
        self._constant("quantize_zero_point", np.array(ZERO_POINT, np.uint8))
        self._constant("quantize_step", np.array(1 / LARGEST, np.float32))
        self._constant("quantize_one", np.array(1.0, np.float32))
        self._constant("quantize_last_axis", np.array([-1], np.int64))
        for node in list(self.graph.node):
            if node.op_type == "MatMul" and self._matrix(node.input[1]) is not None:
                rewrite_product(node)
            elif node.op_type == "Gather" and node.input[0].endswith(WORD_EMBEDDING):
                self._rewrite_gather(node)
            else:
                self.nodes.append(node)
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)
        self._drop_unused()

    def _matrix(self, name: str) -> NDArray[np.float32] | None:
        if name in self.transposed:
            return numpy_helper.to_array(self.weights[self.transposed[name]]).T
        weight = self.weights.get(name)
        return numpy_helper.to_array(weight) if weight is not None and len(weight.dims) == 2 else None

    def _rewrite_by_rows(self, node: onnx.NodeProto) -> None:
        """MatMul(x, W) → MatMulIntegerToFloat(x / row maximum · 127, W / column scale) · row maximum.

        The column scales, over 127, are the operator's own; the row's maximum comes last, so an all-zero row, whose
        quotient is undefined, is still zero.
        """
        row, largest = self._quantized_rows(node.input[0])
        if node.input[1] in self.transposed:
            words, scales = self._quantized_vocabulary(self.transposed[node.input[1]])
            matrix = self._node("Transpose", [words], f"{words}_transposed", perm=[1, 0])
            flat = numpy_helper.to_array(self.weights[scales])[:, 0] / np.float32(LARGEST)
            column_scale = self._constant(f"{scales}_of_columns", flat)
        else:
            weight = self._matrix(node.input[1])
            assert weight is not None
            values, column_scales = quantize_columns(weight)
            matrix = self._constant(f"{node.input[1]}_int8", values)
            column_scale = self._constant(f"{node.input[1]}_scales", column_scales / np.float32(LARGEST))
        name = node.output[0]
        inputs = [row, matrix, "quantize_one", column_scale, "quantize_zero_point"]
        product = self._node("MatMulIntegerToFloat", inputs, f"{name}_by_rows", domain=MICROSOFT)
        self._node("Mul", [product, largest], name)

    def _quantized_rows(self, name: str) -> tuple[str, str]:
        """Return the 8-bit form of an activation and its rows' largest sizes; once, however many products use it."""
        if name not in self.quantized_inputs:
            size = self._node("Abs", [name], f"{name}_abs")
            largest = self._node("ReduceMax", [size, "quantize_last_axis"], f"{name}_largest", keepdims=1)
            scaled = self._node("Div", [name, largest], f"{name}_scaled")
            row = self._node("QuantizeLinear", [scaled, "quantize_step", "quantize_zero_point"], f"{name}_uint8")
            self.quantized_inputs[name] = row, largest
        return self.quantized_inputs[name]

    def _rewrite_by_blocks(self, node: onnx.NodeProto) -> None:
        """MatMul(x, W) → MatMulNBits(x, blocks of W); accuracy level 4 is 8-bit activations."""
        weight = self._matrix(node.input[1])
        assert weight is not None and self.blocks is not None
        values, scales = quantize_blocks(weight, self.blocks)
        name = node.input[1]
        inputs = [
            node.input[0],
            self._constant(f"{name}_blocks", values),
            self._constant(f"{name}_block_scales", scales),
        ]
        sizes = {"K": weight.shape[0], "N": weight.shape[1], "bits": self.blocks.bits, "block_size": self.blocks.size}
        self._node("MatMulNBits", inputs, node.output[0], domain=MICROSOFT, accuracy_level=4, **sizes)

    def _rewrite_gather(self, node: onnx.NodeProto) -> None:
        words, scales = self._quantized_vocabulary(node.input[0])
        name = node.output[0]
        rows = self._node("Gather", [words, node.input[1]], f"{name}_int8")
        rows = self._node("Cast", [rows], f"{name}_cast", to=onnx.TensorProto.FLOAT)
        scale = self._node("Gather", [scales, node.input[1]], f"{name}_scale")
        self._node("Mul", [rows, scale], name)

    def _quantized_vocabulary(self, name: str) -> tuple[str, str]:
        """Quantize a word embedding (V, D), one scale a word: a row when looked up, a column in the output product."""
        if name not in self.quantized_words:
            values, scales = quantize_columns(numpy_helper.to_array(self.weights[name]).T)
            self.quantized_words[name] = (
                self._constant(f"{name}_int8", np.ascontiguousarray(values.T)),
                self._constant(f"{name}_scales", scales[:, None]),
            )
        return self.quantized_words[name]

    def _node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        if output not in {name for node in self.nodes for name in node.output}:
            self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def _constant(self, name: str, values: NDArray[np.generic]) -> str:
        if name not in self.weights:
            self.weights[name] = numpy_helper.from_array(values, name)
            self.graph.initializer.append(self.weights[name])
        return name

    def _drop_unused(self) -> None:
        used = {name for node in self.graph.node for name in node.input} | {out.name for out in self.graph.output}
        for node in [node for node in self.graph.node if not used & set(node.output)]:
            self.graph.node.remove(node)
        used = {name for node in self.graph.node for name in node.input}
        for tensor in [tensor for tensor in self.graph.initializer if tensor.name not in used]:
            self.graph.initializer.remove(tensor)
