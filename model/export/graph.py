"""An ONNX graph in the making: nodes, and weights that are read when they are written, one at a time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

OPSET = 21
IR_VERSION = 10  # of the ONNX format; ONNX Runtime reads it since 1.19
MICROSOFT = "com.microsoft"  # the operators of ONNX Runtime's own
ONE_FILE_BYTES = (
    2**29
)  # a protobuf message may have 2 GiB, and is copied thrice; larger weights lie in a file beside it
SMALL_BYTES = 1024  # what ONNX Runtime infers shapes from has to lie in the graph
ALIGNMENT = 4096  # of weights in that file, so that they can be mapped

Array = NDArray[Any]
Dim = int | str  # a size, or the name of one that is known when the graph runs
Users = dict[str, list[onnx.NodeProto | None]]  # of each value


@dataclass(frozen=True)
class Part:
    """What of a joined weight was one of its own before."""

    name: str | None  # none: zeros, for a product without a bias
    width: int


@dataclass(frozen=True)
class Weight:
    """A constant of the graph. `read` makes it, each time anew: a model's weights never lie in memory twice."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[], Array]
    parts: tuple[Part, ...] = ()  # what it is joined of, side by side along the last axis

    @classmethod
    def of(cls, values: Array) -> Weight:
        """Return a constant that is small enough to be kept."""
        return cls(values.shape, values.dtype, lambda: values)

    @property
    def transposed(self) -> Weight:
        """Return the matrix with its rows as columns."""
        return Weight(self.shape[::-1], self.dtype, lambda: self.read().T)

    @property
    def num_bytes(self) -> int:
        """Size in the file."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True)
class Product:
    """A product of an activation (…, K) with a constant matrix (K, N)."""

    node: onnx.NodeProto
    matrix: Weight
    weight: str  # the name of what the matrix is made of
    is_transposed: bool  # while the graph runs: the word embedding, in its second use

    @property
    def given(self) -> str:
        """The activation's name."""
        name: str = self.node.input[0]
        return name


@dataclass
class Graph:
    """Nodes in the order of computing, inputs and outputs with their shapes, and weights by name."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    weights: dict[str, Weight] = field(default_factory=dict)

    def add_node(
        self, operator: str, inputs: Sequence[str], outputs: Sequence[str], *, domain: str = "", **attributes: Any
    ) -> None:
        """Add a node behind all others."""
        self.nodes.append(helper.make_node(operator, inputs, outputs, domain=domain, **attributes))

    def is_matrix(self, name: str) -> bool:
        """Say whether a name is that of a constant matrix."""
        return name in self.weights and len(self.weights[name].shape) == 2

    def products(self) -> list[Product]:
        """Return the products with constant matrices, in their order."""
        transposed = {
            node.output[0]: node.input[0]
            for node in self.nodes
            if node.op_type == "Transpose" and self.is_matrix(node.input[0])
        }
        found = []
        for node in self.nodes:
            if node.op_type == "MatMul":
                name = transposed.get(node.input[1], node.input[1])
                if self.is_matrix(name):
                    weight, is_transposed = self.weights[name], node.input[1] in transposed
                    found.append(Product(node, weight.transposed if is_transposed else weight, name, is_transposed))
        return found

    def users(self) -> Users:
        """Return which nodes take each value; an output of the graph is taken by one more, which is None."""
        users: Users = defaultdict(list)
        for node in self.nodes:
            for name in node.input:
                users[name].append(node)
        for output in self.outputs:
            users[output.name].append(None)
        return users

    def constant(self, name: str, values: Array) -> str:
        """Add a small constant, unless it is there; returns its name."""
        self.weights.setdefault(name, Weight.of(values))
        return name

    def bias_behind(self, product: onnx.NodeProto, users: Users) -> onnx.NodeProto | None:
        """Return the addition of a constant vector that alone uses a product."""
        addition = users[product.output[0]][0] if len(users[product.output[0]]) == 1 else None
        if addition is None or addition.op_type != "Add" or addition.input[0] != product.output[0]:
            return None
        vector = self.weights.get(addition.input[1])
        return addition if vector is not None and len(vector.shape) == 1 else None

    def drop_unused(self) -> None:
        """Drop nodes that no output needs, and weights that no node uses."""
        needed, kept = {output.name for output in self.outputs}, []
        for node in reversed(self.nodes):
            if needed & set(node.output):
                kept.append(node)
                needed |= set(node.input)
        self.nodes = kept[::-1]
        self.weights = {name: weight for name, weight in self.weights.items() if name in needed}

    def save(self, path: Path) -> None:
        """Write the graph; the weights of a large one go into `<path>.data`, tensor by tensor."""
        is_large = sum(weight.num_bytes for weight in self.weights.values()) > ONE_FILE_BYTES
        tensors = _beside(self.weights, path) if is_large else starmap(_inline, self.weights.items())
        graph = helper.make_graph(self.nodes, path.stem, self.inputs, self.outputs, list(tensors))
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="trifold")
        path.write_bytes(model.SerializeToString())


def _inline(name: str, weight: Weight) -> onnx.TensorProto:
    kind = helper.np_dtype_to_tensor_dtype(weight.dtype)
    tensor: onnx.TensorProto = helper.make_tensor(name, kind, weight.shape, _values(weight).tobytes(), raw=True)
    return tensor


def _values(weight: Weight) -> Array:
    """Read a weight, row by row in memory."""
    values = np.asarray(weight.read(), weight.dtype, order="C")
    assert values.shape == weight.shape, f"bug: a weight of shape {weight.shape} is {values.shape}"
    return values


def _beside(weights: dict[str, Weight], path: Path) -> Iterator[onnx.TensorProto]:
    """Write the weights beside the graph, and yield what says where each is; sizes and axes stay in the graph."""
    data = path.with_name(f"{path.name}.data")
    with data.open("wb") as file:
        for name, weight in weights.items():
            if weight.num_bytes <= SMALL_BYTES:
                yield _inline(name, weight)
                continue
            file.seek(-file.tell() % ALIGNMENT, 1)
            tensor = onnx.TensorProto(name=name, dims=weight.shape, data_location=onnx.TensorProto.EXTERNAL)
            tensor.data_type = helper.np_dtype_to_tensor_dtype(weight.dtype)
            places = {"location": data.name, "offset": file.tell(), "length": weight.num_bytes}
            for key, value in places.items():
                tensor.external_data.add(key=key, value=str(value))
            file.write(_values(weight).data)
            yield tensor
