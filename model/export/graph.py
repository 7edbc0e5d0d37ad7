"""An ONNX graph in the making: nodes, and weights that are read when they are written, one at a time."""

from __future__ import annotations

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
OLDEST_RUNTIME = "1.30"  # its GroupQueryAttention is the first to look both ways; 1.20 to 1.31 were tried
MICROSOFT = "com.microsoft"  # the operators of ONNX Runtime's own
ONE_FILE_BYTES = (
    2**29
)  # a protobuf message may have 2 GiB, and is copied thrice; larger weights lie in a file beside it
SMALL_BYTES = 1024  # what ONNX Runtime infers shapes from has to lie in the graph
ALIGNMENT = 4096  # of weights in that file, so that they can be mapped

Array = NDArray[Any]
Dim = int | str  # a size, or the name of one that is known when the graph runs


@dataclass(frozen=True)
class Weight:
    """A constant of the graph. `read` makes it, each time anew: a model's weights never lie in memory twice."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    read: Callable[[], Array]

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

    def constant(self, name: str, values: Array) -> str:
        """Add a small constant, unless it is there; returns its name."""
        self.weights.setdefault(name, Weight.of(values))
        return name

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
