"""From the model's own code to an ONNX graph: its `forward` runs with values that note down what is done with them.

A `Value` stands for a tensor. Torch asks it what each of its functions shall do (`__torch_function__`), and the answer
is a node. So there is one definition of a model, and tracing it takes milliseconds a block. A `Tracer` is given the
functions that are known, those of `model.export.operations`; operators that torch has not are noted down by its `emit`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from onnx import helper
from torch import Tensor, nn

from model.export.graph import Array, Dim, Graph, Weight

NUMPY = {
    torch.float32: np.float32,
    torch.float16: np.float16,
    torch.int64: np.int64,
    torch.int32: np.int32,
    torch.bool: np.bool_,
}
FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
TRANSPOSED = ".transposed"  # behind the name of a matrix that is stored with its rows as columns


def onnx_type(dtype: torch.dtype) -> int:
    """Return ONNX's number of a type."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(NUMPY[dtype])))


def as_tensor(value: Value) -> Tensor:
    """Let a value stand where a tensor is expected."""
    return cast(Tensor, value)


def as_value(tensor: Tensor) -> Value:
    """Return what a function of tensors has made of values."""
    assert isinstance(tensor, Value), "bug: the function has not met a value"
    return tensor


class Value:
    """What stands for a tensor: its name in the graph, its shape as far as it is known, and its type."""

    def __init__(self, tracer: Tracer, name: str, shape: tuple[Dim, ...], dtype: torch.dtype) -> None:
        self.tracer, self.name, self.shape, self.dtype = tracer, name, shape, dtype
        self.device = torch.device("cpu")

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Note down what torch is asked to do with a value."""
        return apply(function.__name__.strip("_"), *args, **(kwargs or {}))

    def __getattr__(self, name: str) -> Callable[..., Value]:
        """Return a method of tensors, as `transpose`."""
        if name not in self.tracer.operations:
            raise AttributeError(f"{name} of a tensor has no form in ONNX here; add it to model.export.operations")
        return partial(apply, name, self)

    def dim(self) -> int:
        """Return the number of axes."""
        return len(self.shape)

    @property
    def T(self) -> Value:  # noqa: N802  # a tensor's name for it
        """Return the matrix with its rows as columns."""
        return apply("transpose", self, 0, 1)

    def __getitem__(self, index: Any) -> Value:
        return apply("getitem", self, index)

    def __add__(self, other: object) -> Value:
        return apply("add", self, other)

    def __radd__(self, other: object) -> Value:
        return apply("add", other, self)

    def __sub__(self, other: object) -> Value:
        return apply("sub", self, other)

    def __rsub__(self, other: object) -> Value:
        return apply("sub", other, self)

    def __mul__(self, other: object) -> Value:
        return apply("mul", self, other)

    def __rmul__(self, other: object) -> Value:
        return apply("mul", other, self)

    def __truediv__(self, other: object) -> Value:
        return apply("div", self, other)

    def __matmul__(self, other: object) -> Value:
        return apply("matmul", self, other)

    def __neg__(self) -> Value:
        return apply("neg", self)

    def __and__(self, other: object) -> Value:
        return apply("and", self, other)

    def __lt__(self, other: object) -> Value:
        return apply("lt", self, other)

    def __le__(self, other: object) -> Value:
        return apply("le", self, other)

    def __gt__(self, other: object) -> Value:
        return apply("gt", self, other)

    def __ge__(self, other: object) -> Value:
        return apply("ge", self, other)


class Tracer:
    """Notes down one graph of a module's tensors, in nodes that `operations` make of torch's functions, by their names.

    Floats become `float_type`, whatever the module has them in.
    """

    def __init__(
        self, module: nn.Module, operations: Mapping[str, Operation], float_type: torch.dtype = torch.float32
    ) -> None:
        self.graph = Graph()
        self.operations = operations
        self.float_type = float_type
        self.names = {id(tensor): name for name, tensor in [*module.named_parameters(), *module.named_buffers()]}
        self.constants: dict[tuple[object, ...], Value] = {}
        self.looked_up: set[str] = set()  # weights of which rows are gathered: they keep their shape

    def input(self, name: str, shape: Sequence[Dim], dtype: torch.dtype = torch.int64) -> Value:
        """Declare an input of the graph."""
        self.graph.inputs.append(helper.make_tensor_value_info(name, onnx_type(dtype), shape))
        return Value(self, name, tuple(shape), dtype)

    def output(self, name: str, value: Value) -> None:
        """Declare what a value is called as an output of the graph."""
        for node in self.graph.nodes:
            for names in (node.input, node.output):
                for place, used in enumerate(names):
                    if used == value.name:
                        names[place] = name
        self.graph.outputs.append(helper.make_tensor_value_info(name, onnx_type(value.dtype), value.shape))

    def emit(
        self,
        operator: str,
        inputs: Sequence[object],
        shape: Sequence[Dim],
        dtype: torch.dtype,
        domain: str = "",
        **attributes: Any,
    ) -> Value:
        """Note down a node with one output."""
        return self.emit_all(operator, inputs, [(tuple(shape), dtype)], domain, **attributes)[0]

    def emit_all(
        self,
        operator: str,
        inputs: Sequence[object],
        outputs: Sequence[tuple[tuple[Dim, ...], torch.dtype]],
        domain: str = "",
        **attributes: Any,
    ) -> list[Value]:
        """Note down a node; inputs are values, tensors, or None where one is left out."""
        names = ["" if given is None else self.value(given).name for given in inputs]
        number = len(self.graph.nodes)
        found = [
            Value(self, f"{operator}_{number}" + (f"_{place}" if place else ""), *output)
            for place, output in enumerate(outputs)
        ]
        self.graph.add_node(operator, names, [value.name for value in found], domain=domain, **attributes)
        return found

    def value(self, given: object, like: torch.dtype | None = None) -> Value:
        """Return a tensor or a number, of the type `like`, as a value; a value is itself."""
        if isinstance(given, Value):
            return given
        if isinstance(given, Tensor):
            name = self.names.get(id(given))
            return self._constant(given.to(self._stored(given.dtype))) if name is None else self._weight(name, given)
        assert like is not None, f"bug: {given!r} is no tensor"
        return self._constant(torch.tensor(given, dtype=like))

    def integers(self, *values: int) -> Value:
        """Return a constant list of sizes or axes."""
        return self._constant(torch.tensor(values, dtype=torch.int64))

    def sizes(self, dims: Sequence[Dim]) -> Value:
        """Return a list of sizes, of which some are known when the graph runs, from the shapes of its inputs."""
        if all(isinstance(dim, int) for dim in dims):
            return self.integers(*(int(dim) for dim in dims))
        parts = [self.integers(dim) if isinstance(dim, int) else self._size(dim) for dim in dims]
        return self.emit("Concat", parts, (len(dims),), torch.int64, axis=0)

    def _size(self, dim: str) -> Value:
        for given in self.graph.inputs:
            for axis, size in enumerate(given.type.tensor_type.shape.dim):
                if size.dim_param == dim:
                    whole = Value(self, given.name, (), torch.int64)
                    return self.emit("Shape", [whole], (1,), torch.int64, start=axis, end=axis + 1)
        raise AssertionError(f"bug: no input has the size {dim}")

    def transposed(self, weight: Tensor) -> Value:
        """Return a matrix (N, K) as (K, N): stored so, unless its rows are looked up, too."""
        value = self.value(weight)
        columns, rows = value.shape
        if value.name in self.looked_up:
            return self.emit("Transpose", [value], (rows, columns), value.dtype, perm=[1, 0])
        name = f"{value.name}{TRANSPOSED}"
        self.graph.weights[name] = self.graph.weights[value.name].transposed
        return Value(self, name, (rows, columns), value.dtype)

    def _weight(self, name: str, tensor: Tensor) -> Value:
        dtype = self._stored(tensor.dtype)
        if name not in self.graph.weights:
            self.graph.weights[name] = Weight(
                tuple(tensor.shape), np.dtype(NUMPY[dtype]), lambda: tensor.detach().to(dtype).numpy()
            )
        return Value(self, name, tuple(tensor.shape), dtype)

    def _constant(self, tensor: Tensor) -> Value:
        array: Array = tensor.detach().numpy()
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self.constants:
            name = self.graph.constant(f"constant_{len(self.constants)}", array)
            self.constants[key] = Value(self, name, tuple(array.shape), tensor.dtype)
        return self.constants[key]

    def _stored(self, dtype: torch.dtype) -> torch.dtype:
        return self.float_type if dtype in FLOATS else dtype


Operation = Callable[..., Value]  # is given the tracer, and what torch's function would be given


def apply(name: str, *args: Any, **kwargs: Any) -> Value:
    """Note down one of torch's functions or methods; raises `NotImplementedError` for one that has no form here."""
    listed = [each for given in args for each in (given if isinstance(given, list | tuple) else (given,))]
    tracer = next(given.tracer for given in listed if isinstance(given, Value))
    if name not in tracer.operations:
        raise NotImplementedError(f"torch's {name} has no form in ONNX here; add it to model.export.operations")
    return tracer.operations[name](tracer, *args, **kwargs)
