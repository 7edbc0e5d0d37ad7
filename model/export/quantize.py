"""Integer weights whose answers do not depend on the batch.

`int8`: weights of signed 8 bits with one scale per output column; activations of 8 bits with one scale per row, found
while running, so a row's result is the same whoever stands beside it: the products are summed in int32, exactly. (The
usual dynamic quantization takes one scale for the whole batch, and a loud row then coarsens its neighbours.)

`int8-blocks`, `int4-blocks`: one scale per block of each column, one operator per product, which quantizes activations
by row and block itself. Fastest with one row or few, slowest with many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from model.export.graph import MICROSOFT, Array, Graph, Weight

ZERO_POINT = 128  # activations are stored as uint8 around it, which is what MatMulInteger is fastest with
LARGEST = 127
WORD_EMBEDDING = "embeddings.words.weight"  # its name in every architecture, and so in every graph
TINY = 1e-12  # keeps the scale of an all-zero column from being 0


@dataclass(frozen=True)
class Blocks:
    """Weights in blocks of `size` along a column, of `bits` bits each."""

    bits: int
    size: int


BLOCKS = {"int8-blocks": Blocks(8, 128), "int4-blocks": Blocks(4, 32)}


def quantize(graph: Graph, blocks: Blocks | None = None) -> Graph:
    """Return a float32 graph with integer weights: of every product with a constant matrix, and the word embedding."""
    return _Rewrite(graph, blocks).run()


def quantize_columns(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return the 8-bit matrix and the scale of each column of `weight` (K, N): weight ≈ matrix · scales."""
    columns = weight.T  # as torch has them: a column's numbers lie side by side
    values, scales = np.empty(columns.shape, np.int8), np.empty(len(columns), np.float32)
    for part in _parts(len(columns)):
        some = columns[part]
        scales[part] = np.maximum(np.abs(some).max(axis=1), TINY) / LARGEST
        values[part] = np.rint(some / scales[part, None])
    return values.T, scales


def quantize_blocks(weight: NDArray[np.float32], blocks: Blocks) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    """Return `weight` (K, N) as MatMulNBits takes it: (N, blocks, bytes a block), and the scales (N · blocks,).

    Columns are filled with zeros to whole blocks; a value is stored with half its range added.
    """
    rows, columns = weight.shape
    count, half = -(-rows // blocks.size), 2 ** (blocks.bits - 1)
    values = np.empty((columns, count, blocks.size * blocks.bits // 8), np.uint8)
    scales = np.empty((columns, count), np.float32)
    for part in _parts(columns):
        some = np.pad(weight.T[part], ((0, 0), (0, count * blocks.size - rows))).reshape(-1, count, blocks.size)
        scales[part] = np.maximum(np.abs(some).max(axis=-1), TINY) / (half - 1)
        whole = (np.rint(some / scales[part, :, None]) + half).astype(np.uint8)
        values[part] = whole if blocks.bits == 8 else whole[..., ::2] | (whole[..., 1::2] << 4)
    return values, scales.ravel()


def _parts(count: int, size: int = 256) -> Iterator[slice]:
    """Yield the places of a few columns at a time: copies of a whole vocabulary would take gigabytes."""
    return (slice(start, start + size) for start in range(0, count, size))


class _Rewrite:
    """One graph being rewritten; new nodes are collected in order, so the graph stays sorted."""

    def __init__(self, graph: Graph, blocks: Blocks | None) -> None:
        self.old, self.blocks = graph, blocks
        self.new = Graph([], graph.inputs, graph.outputs, dict(graph.weights))
        self.made: set[str] = set()  # outputs of new nodes
        self.transposed = {
            node.output[0]: node.input[0]
            for node in graph.nodes
            if node.op_type == "Transpose" and node.input[0] in graph.weights
        }
        self.quantized_inputs: dict[str, tuple[str, str]] = {}

    def run(self) -> Graph:
        rewrite_product = self._rewrite_by_rows if self.blocks is None else self._rewrite_by_blocks
        self.new.constant("quantize_zero_point", np.array(ZERO_POINT, np.uint8))
        self.new.constant("quantize_step", np.array(1 / LARGEST, np.float32))
        self.new.constant("quantize_one", np.array(1.0, np.float32))
        self.new.constant("quantize_last_axis", np.array([-1], np.int64))
        for node in self.old.nodes:
            if node.op_type == "MatMul" and self._matrix(node.input[1]) is not None:
                rewrite_product(node)
            elif node.op_type == "Gather" and node.input[0].endswith(WORD_EMBEDDING):
                self._rewrite_gather(node)
            else:
                self.new.nodes.append(node)
        self.new.drop_unused()
        return self.new

    def _matrix(self, name: str) -> Weight | None:
        """Return a constant matrix, or one of words that is transposed while running."""
        if name in self.transposed:
            return self.old.weights[self.transposed[name]].transposed
        return self.old.weights[name] if self.old.is_matrix(name) else None

    def _rewrite_by_rows(self, node: onnx.NodeProto) -> None:
        """MatMul(x, W) → MatMulIntegerToFloat(x / row maximum · 127, W / column scale) · row maximum.

        The column scales, over 127, are the operator's own; the row's maximum comes last, so an all-zero row, whose
        quotient is undefined, is still zero.
        """
        row, largest = self._quantized_rows(node.input[0])
        if node.input[1] in self.transposed:
            words, scales = self._quantized_vocabulary(self.transposed[node.input[1]])
            matrix = self._node("Transpose", [words], f"{words}_transposed", perm=[1, 0])
            scale = self.new.weights[scales]
            column_scale = f"{scales}_of_columns"
            self.new.weights[column_scale] = Weight(
                scale.shape[:1], scale.dtype, lambda: scale.read()[:, 0] / np.float32(LARGEST)
            )
        else:
            matrix, column_scale = self._quantized_columns(node.input[1])
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

    def _quantized_columns(self, name: str) -> tuple[str, str]:
        """Return a matrix (K, N) in 8 bits, and its columns' scales, over 127, as the operator takes them."""
        values, scales = f"{name}_int8", f"{name}_scales"
        if values not in self.new.weights:
            weight = self.old.weights[name]
            made = _Once(lambda: quantize_columns(weight.read()))
            self.new.weights[values] = Weight(weight.shape, np.dtype(np.int8), made.first)
            self.new.weights[scales] = Weight(
                weight.shape[1:], np.dtype(np.float32), lambda: made.second() / np.float32(LARGEST)
            )
        return values, scales

    def _rewrite_by_blocks(self, node: onnx.NodeProto) -> None:
        """MatMul(x, W) → MatMulNBits(x, blocks of W); accuracy level 4 is 8-bit activations."""
        name, weight, blocks = node.input[1], self._matrix(node.input[1]), self.blocks
        assert weight is not None and blocks is not None
        rows, columns = weight.shape
        count = -(-rows // blocks.size)
        made = _Once(lambda: quantize_blocks(weight.read(), blocks))
        shape = columns, count, blocks.size * blocks.bits // 8
        self.new.weights[f"{name}_blocks"] = Weight(shape, np.dtype(np.uint8), made.first)
        self.new.weights[f"{name}_block_scales"] = Weight((columns * count,), np.dtype(np.float32), made.second)
        inputs = [node.input[0], f"{name}_blocks", f"{name}_block_scales"]
        sizes = {"K": rows, "N": columns, "bits": blocks.bits, "block_size": blocks.size}
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
        values, scales = f"{name}_int8", f"{name}_scales"
        if values not in self.new.weights:
            weight = self.old.weights[name]
            made = _Once(lambda: quantize_columns(weight.read().T))
            self.new.weights[values] = Weight(weight.shape, np.dtype(np.int8), lambda: made.first().T)
            self.new.weights[scales] = Weight(
                (weight.shape[0], 1), np.dtype(np.float32), lambda: made.second()[:, None]
            )
        return values, scales

    def _node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        if output not in self.made:
            self.made.add(output)
            self.new.add_node(operator, inputs, [output], **attributes)
        return output


class _Once:
    """A matrix in integers and its scales, made when they are asked for; only the scales, which are small, stay."""

    def __init__(self, make: Callable[[], tuple[Array, Array]]) -> None:
        self._make = make
        self._scales: Array | None = None

    def first(self) -> Array:
        values, self._scales = self._make()
        return values

    def second(self) -> Array:
        if self._scales is None:
            self._scales = self._make()[1]
        return self._scales
