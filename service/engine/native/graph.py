"""A package's graph with operators of our own: for products of 8-bit integers, and for attention to a KV cache.

A product is several nodes, of which the rounding of activations alone goes over memory three times (`int8`: Abs,
ReduceMax, Div, QuantizeLinear, MatMulIntegerToFloat, Mul, Add; `int8-static`: QuantizeLinear, MatMulIntegerToFloat).
As `trifold.Linear` it is one, with the same answers to the last bit.

`trifold.Attention` stands for GroupQueryAttention. Its sums go in another order, so answers differ in their last bits;
a token's are the same whether it is computed alone or among others, and the cache may have numbers of 16 bits.
`trifold.RaggedAttention` is that of encoders, which computes nothing for padding.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from service.engine.arrays import Array
from service.engine.native.attention import (
    BIAS,
    DOMAIN,
    SLOTS,
    SOURCE_SLOTS,
    is_to_source,
    own_attention,
    own_ragged_attention,
    see_only_near,
    slopes_behind,
)
from service.engine.native.products import Product, Products
from service.engine.onnx_nodes import drop_unused

PANEL_COLUMNS, GROUP = 32, 4  # as `linear.h` reads matrices
ALIGNMENT = 64  # bytes, of a register and of a cache's line: one that lies across two lines is read twice
NOWHERE = 2**60  # bytes, behind the end of any file
SMALL = 4096  # bytes of a weight that stays in the graph
OTHER_FLOATS = {onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE}


@dataclass(frozen=True)
class NativeGraph:
    """A graph, and its weights beside it, which all sessions that run it can share."""

    model: bytes
    weights: Mapping[str, Array]
    own_bytes: int  # of the weights that each session reads out of the file for itself
    has_half_cache: bool  # keys and values are kept in 16 bits
    takes_slots: bool  # several rows may be tokens of one sequence, if the input `SLOTS` says so


def may_be_native(path: Path) -> bool:
    """Tell whether a graph's file names what ours stand for; it is searched and not read as a graph."""
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return any(content.find(name) >= 0 for name in (b"MatMulIntegerToFloat", b"GroupQueryAttention"))


def native_graph(path: Path, *, half_cache: bool = False) -> NativeGraph | None:
    """Read a graph and write it with our operators; None if there is nothing for them in it.

    `half_cache`: let it keep keys and values in 16 bits, if all that read them are our own.
    """
    model = onnx.load(path, load_external_data=False)
    if any(each.HasField("g") or each.graphs for node in model.graph.node for each in node.attribute):
        return None  # what a loop or a branch reads of its surroundings is not looked for
    rewrite = _Rewrite(model, path.resolve(), half_cache=half_cache)
    return rewrite.written() if rewrite.run() else None


def panels_of(matrix: Array) -> Array:
    """Return a matrix (depth, columns) in the order in which `registers_*.h` read it.

    That is (panels, groups, columns of a panel, numbers of a group), filled up with zeros.
    """
    depth, columns = matrix.shape
    panels, groups = -(-columns // PANEL_COLUMNS), -(-depth // GROUP)
    ordered = aligned((panels, groups, PANEL_COLUMNS, GROUP), np.int8)
    filled = np.zeros((groups * GROUP, PANEL_COLUMNS), np.int8)
    for panel in range(panels):  # one at a time: a copy of a whole vocabulary would take as much memory again
        some = matrix[:, panel * PANEL_COLUMNS : (panel + 1) * PANEL_COLUMNS]
        filled[:depth, : some.shape[1]] = some
        filled[:, some.shape[1] :] = 0
        for place in range(GROUP):  # half the time of one assignment of the whole, transposed
            ordered[panel, :, :, place] = filled[place::GROUP]
    return ordered


def aligned(shape: Sequence[int], dtype: Any) -> Array:
    """Take memory that begins with a cache line."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    values: Array = memory[start : start + size].view(dtype).reshape(shape)
    return values


def _copied(values: Array) -> Array:
    copy = aligned(values.shape, values.dtype)
    copy[...] = values
    return copy


class _Rewrite:
    def __init__(self, model: onnx.ModelProto, path: Path, *, half_cache: bool) -> None:
        self._model, self._path, self._wants_half_cache = model, path, half_cache
        self._has_half_cache = self._takes_slots = False
        self._inputs = {each.name for each in model.graph.input}
        self._products = Products(model.graph, str(path.parent))
        self._weights: dict[str, Array] = {}

    def run(self) -> bool:
        """Put our operators where a product or an attention is; return whether there was one."""
        old = list(self._model.graph.node)
        products = (self._products.of(node) for node in old if node.op_type == "MatMulIntegerToFloat")
        ours = {id(product.last): self._linear(product) for product in products if product is not None}
        attentions = self._attentions([node for node in old if node.op_type == "GroupQueryAttention"])
        weights = {weight.name: weight for weight in self._model.graph.initializer}
        for node in attentions.values():
            slopes = slopes_behind(node.input[BIAS], self._products.makers, weights)
            node.input[BIAS] = slopes or node.input[BIAS]
            see_only_near(node, self._products.makers, weights)
        ours |= attentions
        if not ours:
            return False
        nodes = [ours.get(id(node), node) for node in old]
        del self._model.graph.node[:]
        self._model.graph.node.extend(nodes)
        drop_unused(self._model.graph)
        return True

    def written(self) -> NativeGraph:
        """Take out of the graph what our operators read, and the tables that rows are looked up in.

        Any other weight may be read by whoever prepares a graph to run, as by those who fuse operators: it is read out
        of the file, as the graph that is handed on would be held as long as the session.
        """
        others = {
            name
            for node in self._model.graph.node
            for place, name in enumerate(node.input)
            if node.domain != DOMAIN and not (place == 0 and self._looks_up(node))
        }
        for tensor in self._model.graph.initializer:
            if tensor.name in others or tensor.name in (SLOTS, SOURCE_SLOTS):
                continue
            if tensor.name not in self._weights:
                values = self._products.values(tensor.name)
                if values.nbytes < SMALL:
                    continue
                self._weights[tensor.name] = _copied(values)
            self._place_beside(tensor, NOWHERE)
        self._leave_in_the_file(others)
        self._model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        used = {tensor.name for tensor in self._model.graph.initializer}
        weights = {name: values for name, values in self._weights.items() if name in used}
        own_bytes = sum(_size(tensor) for tensor in self._model.graph.initializer if tensor.name not in weights)
        model = self._model.SerializeToString()
        return NativeGraph(model, weights, own_bytes, self._has_half_cache, self._takes_slots)

    def _leave_in_the_file(self, names: Set[str]) -> None:
        """Say of large weights with these names where in the graph's own file they are."""
        with self._path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            place = 0
            for tensor in self._model.graph.initializer:
                length = len(tensor.raw_data)
                if tensor.name not in names or length < SMALL:
                    continue
                found = content.find(tensor.raw_data, place)  # they are in the graph's order
                if found >= 0:
                    place = found + length
                    self._place_beside(tensor, found, length)

    def _looks_up(self, node: onnx.NodeProto) -> bool:
        """Tell whether a node looks up rows that a request asks for: others may be looked up before there is one."""
        return node.op_type == "Gather" and node.input[1] in self._inputs

    def _place_beside(self, tensor: onnx.TensorProto, offset: int, length: int | None = None) -> None:
        """Leave of a weight its name and shape, and where the rest is in the graph's file.

        `NOWHERE`: sessions are given it, and never read it where it is said to be, as that would fail.
        """
        name, kind, shape = tensor.name, tensor.data_type, list(tensor.dims)
        tensor.Clear()
        tensor.name, tensor.data_type, tensor.data_location = name, kind, onnx.TensorProto.EXTERNAL
        tensor.dims.extend(shape)
        said = {"location": self._path.name, "offset": str(offset)}
        for key, value in (said if length is None else {**said, "length": str(length)}).items():
            tensor.external_data.add(key=key, value=value)

    def _linear(self, product: Product) -> onnx.NodeProto:
        order = "columns" if product.is_transposed else "rows"
        weights = f"{product.matrix}_panels_of_{order}"
        sums = f"{weights}_sums"
        if weights not in self._weights:
            matrix = self._products.values(product.matrix)
            matrix = matrix.T if product.is_transposed else matrix
            self._add(weights, panels_of(matrix))
            # Of both axes at once it takes ten times as long.
            of_groups = self._weights[weights].sum(axis=1, dtype=np.int32)
            self._add(sums, _copied(of_groups.sum(axis=2, dtype=np.int32).ravel()))
        scales = f"{product.last.output[0]}_scales_of_panels"
        self._add(scales, _copied(np.pad(product.scales, (0, -product.columns % PANEL_COLUMNS))))
        return helper.make_node(
            "Linear",
            [product.given, weights, scales, sums, *filter(None, [product.bias])],
            product.last.output[:1],
            domain=DOMAIN,
            depth=product.depth,
            columns=product.columns,
            step=product.step,
            zero_point=product.zero_point,
            by_rows=int(product.by_rows),
        )

    def _attentions(self, nodes: Sequence[onnx.NodeProto]) -> dict[int, onnx.NodeProto]:
        """Return for each attention the node of ours that stands for it."""
        inputs = {each.name: each.type.tensor_type for each in self._model.graph.input}
        attentions = {id(node): own_attention(node, inputs) for node in nodes}
        ours = {key: attention for key, attention in attentions.items() if attention is not None}
        if not ours:
            return self._ragged_attentions(nodes)
        cached = {name for node in ours.values() for name in (*node.input[3:5], *node.output[1:3])}
        readers = {id(user) for name in cached for user in self._products.users.get(name, [])}
        are_alone = bool(ours) and readers <= ours.keys()
        if are_alone and len(ours) == len(nodes):
            self._let_rows_share_slots(ours.values())
        self._has_half_cache = self._wants_half_cache and are_alone
        if self._has_half_cache:
            for value in (*self._model.graph.input, *self._model.graph.output):
                if value.name in cached:
                    value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
            for node in ours.values():
                node.op_type = "HalfAttention"
        return ours

    def _ragged_attentions(self, nodes: Sequence[onnx.NodeProto]) -> dict[int, onnx.NodeProto]:
        """Return for each attention of rows to themselves the node of ours that stands for it."""
        graph = self._model.graph
        if _has_other_floats(graph):
            return {}  # no attention says which floats it takes
        used = {name for name, users in self._products.users.items() if users}
        used |= {output.name for output in graph.output}
        attentions = {id(node): own_ragged_attention(node, used) for node in nodes}
        return {key: attention for key, attention in attentions.items() if attention is not None}

    def _let_rows_share_slots(self, attentions: Collection[onnx.NodeProto]) -> None:
        self._takes_slots = True
        graph = self._model.graph
        for node in attentions:
            node.input[-1] = SOURCE_SLOTS if is_to_source(node) else SLOTS
        for name in sorted({node.input[-1] for node in attentions}):
            graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.INT32, ["rows that share"]))
            graph.initializer.append(onnx.TensorProto(name=name, data_type=onnx.TensorProto.INT32, dims=[0]))

    def _add(self, name: str, values: Array) -> None:
        self._weights[name] = values
        kind = helper.np_dtype_to_tensor_dtype(values.dtype)
        self._model.graph.initializer.append(onnx.TensorProto(name=name, data_type=kind, dims=values.shape))


def _has_other_floats(graph: onnx.GraphProto) -> bool:
    """Tell whether a graph has floats of other than 32 bits anywhere."""
    kinds = {each.data_type for each in graph.initializer}
    kinds |= {each.type.tensor_type.elem_type for each in graph.input}
    kinds |= {each.i for node in graph.node if node.op_type == "Cast" for each in node.attribute if each.name == "to"}
    return not kinds.isdisjoint(OTHER_FLOATS)


def _size(tensor: onnx.TensorProto) -> int:
    """Return the bytes of a weight."""
    dtype: np.dtype[Any] = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    size: int = math.prod(tensor.dims) * dtype.itemsize
    return size
