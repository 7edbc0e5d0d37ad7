"""Integer weights whose answers do not depend on the batch.

`int8`: weights of signed 8 bits with one scale per output column; activations of 8 bits with one scale per row, found
while running, so a row's result is the same whoever stands beside it: the products are summed in int32, exactly. (The
usual dynamic quantization takes one scale for the whole batch, and a loud row then coarsens its neighbours.) Rows
behind a ReLU have no number below 0, and all 256 values above it: half the step of others.

`int8-static`: the same weights; activations of 8 bits whose scales were found before, on sample texts, and are the same
for all rows and batches. Two nodes a product instead of seven, and a sum of integers as exact.

`int8-blocks`, `int4-blocks`: one scale per block of each column, one operator per product, which quantizes activations
by row and block itself. Fastest with one row or few, slowest with many.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from model.export.graph import MICROSOFT, Array, Graph, Product, Weight
from model.export.ranges import Ranges
from model.package.manifest import Precision

ZERO_POINT = 128  # activations are stored as uint8 around it, which is what MatMulInteger is fastest with
LARGEST, LARGEST_OF_RELU = 127, 255
WORD_EMBEDDING = "embeddings.words.weight"  # its name in every architecture, and so in every graph
TINY = 1e-12  # keeps the scale of an all-zero column from being 0


@dataclass(frozen=True)
class Blocks:
    """Weights in blocks of `size` along a column, of `bits` bits each."""

    bits: int
    size: int


BLOCKS: dict[Precision, Blocks] = {"int8-blocks": Blocks(8, 128), "int4-blocks": Blocks(4, 32)}


def quantize(graph: Graph, precision: Precision, ranges: Ranges | None = None) -> Graph:
    """Return a float32 graph with integer weights: of every product of tokens with a matrix, and the word embedding.

    What pooled heads multiply, one row a text, and convolutions stay as they are.

    `int8-static` needs the ranges that `find_ranges` has found.
    """
    if precision in BLOCKS:
        return _ByBlocks(graph, BLOCKS[precision]).run()
    if precision == "int8-static":
        assert ranges is not None, "bug: constant scales are made of ranges"
        return _ByConstants(graph, ranges).run()
    return _ByRows(graph).run()


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


class _Rewrite(ABC):
    """One graph being rewritten; new nodes are collected in order, so the graph stays sorted."""

    def __init__(self, graph: Graph) -> None:
        self.old = graph
        self.new = Graph([], graph.inputs, graph.outputs, dict(graph.weights))
        self.made: set[str] = set()  # outputs of new nodes
        self._makers = {name: node for node in graph.nodes for name in node.output}

    def run(self) -> Graph:
        products = {id(product.node): product for product in self.old.products()}
        for node in self.old.nodes:
            if id(node) in products:
                self.rewrite(products[id(node)])
            elif node.op_type == "Gather" and node.input[0].endswith(WORD_EMBEDDING):
                self._rewrite_gather(node)
            elif node.output[0] not in self.made:
                self.new.nodes.append(node)
        self.new.drop_unused()
        return self.new

    @abstractmethod
    def rewrite(self, product: Product) -> None:
        """Add what stands for a product."""

    def columns(self, product: Product) -> tuple[str, str]:
        """Return a product's matrix (K, N) in 8 bits, and the scales of its columns (N,)."""
        if product.is_transposed:
            words, scales = self._vocabulary(product.weight)
            scale = self.new.weights[scales]
            columns = f"{scales}_of_columns"
            self.new.weights[columns] = Weight(scale.shape[:1], scale.dtype, lambda: scale.read()[:, 0])
            return self.node("Transpose", [words], f"{words}_transposed", perm=[1, 0]), columns
        values, scales = f"{product.weight}_int8", f"{product.weight}_scales"
        if values not in self.new.weights:
            matrix = product.matrix
            made = _Quantized(lambda: quantize_columns(matrix.read()))
            self.new.weights[values] = Weight(matrix.shape, np.dtype(np.int8), made.integers)
            self.new.weights[scales] = Weight(matrix.shape[1:], np.dtype(np.float32), made.scales)
        return values, scales

    def relu_before(self, product: Product) -> onnx.NodeProto | None:
        """Return the ReLU that a product's activation comes from, if it does."""
        maker = self._makers.get(product.given)
        return maker if maker is not None and maker.op_type == "Relu" else None

    def node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node unless its output is there; returns the output's name."""
        if output not in self.made:
            self.made.add(output)
            self.new.add_node(operator, inputs, [output], **attributes)
        return output

    def _rewrite_gather(self, node: onnx.NodeProto) -> None:
        words, scales = self._vocabulary(node.input[0])
        name = node.output[0]
        rows = self.node("Gather", [words, node.input[1]], f"{name}_int8")
        rows = self.node("Cast", [rows], f"{name}_cast", to=onnx.TensorProto.FLOAT)
        scale = self.node("Gather", [scales, node.input[1]], f"{name}_scale")
        self.node("Mul", [rows, scale], name)

    def _vocabulary(self, name: str) -> tuple[str, str]:
        """Quantize a word embedding (V, D), one scale a word: a row when looked up, a column in the output product."""
        values, scales = f"{name}_int8", f"{name}_scales"
        if values not in self.new.weights:
            weight = self.old.weights[name]
            made = _Quantized(lambda: quantize_columns(weight.read().T))
            self.new.weights[values] = Weight(weight.shape, np.dtype(np.int8), lambda: made.integers().T)
            self.new.weights[scales] = Weight(
                (weight.shape[0], 1), np.dtype(np.float32), lambda: made.scales()[:, None]
            )
        return values, scales


class _ByRows(_Rewrite):
    """MatMul(x, W) → MatMulIntegerToFloat(x / row maximum · 127, or 255, W / column scale) · row maximum.

    The row's maximum comes last, so an all-zero row, whose quotient is undefined, is still zero.
    """

    def rewrite(self, product: Product) -> None:
        """Add six nodes; four of them stand once, however many products take the same activation."""
        name, given = product.node.output[0], product.given
        largest_value, zero = (LARGEST_OF_RELU, 0) if self.relu_before(product) else (LARGEST, ZERO_POINT)
        zero_point = self.new.constant(f"quantize_zero_point_{zero}", np.array(zero, np.uint8))
        step = self.new.constant(f"quantize_step_of_{largest_value}", np.array(1 / largest_value, np.float32))
        last_axis = self.new.constant("quantize_last_axis", np.array([-1], np.int64))
        size = self.node("Abs", [given], f"{given}_abs")
        largest = self.node("ReduceMax", [size, last_axis], f"{given}_largest", keepdims=1)
        scaled = self.node("Div", [given, largest], f"{given}_scaled")
        row = self.node("QuantizeLinear", [scaled, step, zero_point], f"{given}_uint8")
        inputs = [row, *_beside(self.columns(product), step), zero_point]
        by_rows = self.node("MatMulIntegerToFloat", inputs, f"{name}_by_rows", domain=MICROSOFT)
        self.node("Mul", [by_rows, largest], name)


class _ByConstants(_Rewrite):
    """MatMul(x, W) + bias → MatMulIntegerToFloat(x / step + zero point, W / column scale, bias).

    A ReLU before it needs no node: what is below 0 is below the zero point, which is 0 then.
    """

    def __init__(self, graph: Graph, ranges: Ranges) -> None:
        super().__init__(graph)
        self._ranges = ranges
        self._users = graph.users()

    def rewrite(self, product: Product) -> None:
        """Add two nodes; the first stands once, however many products take the same activation."""
        given = product.given
        step, zero_point = self._ranges[given].step_and_zero_point()
        constants = [
            self.new.constant(f"{given}_step", np.array(step, np.float32)),
            self.new.constant(f"{given}_zero_point", np.array(zero_point, np.uint8)),
        ]
        relu = self.relu_before(product) if zero_point == 0 else None
        origin = given if relu is None else relu.input[0]
        quantized = self.node("QuantizeLinear", [origin, *constants], f"{given}_uint8")
        inputs = [quantized, *_beside(self.columns(product), constants[0]), constants[1]]
        addition = self.old.bias_behind(product.node, self._users)
        if addition is not None:
            inputs += ["", addition.input[1]]
        output = (product.node if addition is None else addition).output[0]
        self.node("MatMulIntegerToFloat", inputs, output, domain=MICROSOFT)


class _ByBlocks(_Rewrite):
    """MatMul(x, W) → MatMulNBits(x, blocks of W); accuracy level 4 is 8-bit activations."""

    def __init__(self, graph: Graph, blocks: Blocks) -> None:
        super().__init__(graph)
        self._blocks = blocks

    def rewrite(self, product: Product) -> None:
        """Add one node."""
        blocks, matrix, name = self._blocks, product.matrix, product.node.input[1]
        rows, columns = matrix.shape
        count = -(-rows // blocks.size)
        made = _Quantized(lambda: quantize_blocks(matrix.read(), blocks))
        shape = columns, count, blocks.size * blocks.bits // 8
        self.new.weights[f"{name}_blocks"] = Weight(shape, np.dtype(np.uint8), made.integers)
        self.new.weights[f"{name}_block_scales"] = Weight((columns * count,), np.dtype(np.float32), made.scales)
        inputs = [product.given, f"{name}_blocks", f"{name}_block_scales"]
        sizes = {"K": rows, "N": columns, "bits": blocks.bits, "block_size": blocks.size}
        self.node("MatMulNBits", inputs, product.node.output[0], domain=MICROSOFT, accuracy_level=4, **sizes)


def _beside(columns: tuple[str, str], step: str) -> list[str]:
    """Return a matrix, the activation's step and the columns' scales, in the operator's order."""
    return [columns[0], step, columns[1]]


class _Quantized:
    """A matrix in integers, made each time it is asked for, and its scales, which are small and stay."""

    def __init__(self, make: Callable[[], tuple[Array, Array]]) -> None:
        self._make = make
        self._scales: Array | None = None

    def integers(self) -> Array:
        integers, self._scales = self._make()
        return integers

    def scales(self) -> Array:
        if self._scales is None:
            self._scales = self._make()[1]
        return self._scales
