"""Torch's functions as ONNX nodes: those that the models here are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from model.export.graph import MICROSOFT, Dim
from model.export.trace import FLOATS, Operation, Tracer, Value, onnx_type

ARITHMETIC = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div"}
COMPARISONS = {"lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual"}
ELEMENTWISE = {"abs": "Abs", "log": "Log", "ceil": "Ceil", "sign": "Sign", "neg": "Neg", "sigmoid": "Sigmoid"}
ELEMENTWISE |= {"tanh": "Tanh", "relu": "Relu"}


OPERATIONS: dict[str, Operation] = {}  # by the names of torch's functions and methods


def operation(*names: str) -> Callable[[Operation], Operation]:
    """Let a function of this file be what some of torch's are noted down by."""

    def register(function: Operation) -> Operation:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return register


def broadcast(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the shape that several shapes are stretched to."""
    longest = max(map(len, shapes))
    columns = zip(*((*[1] * (longest - len(shape)), *shape) for shape in shapes), strict=True)
    return tuple(next((size for size in column if size != 1), 1) for column in columns)


def cast(tracer: Tracer, x: Value, dtype: torch.dtype) -> Value:
    """Return the same numbers as another type."""
    return x if x.dtype == dtype else tracer.emit("Cast", [x], x.shape, dtype, to=onnx_type(dtype))


def _alike(tracer: Tracer, *given: object) -> list[Value]:
    """Return values of one type: the widest of them; numbers take that of the tensors, unless they have a fraction."""
    dtypes = [tracer.value(x).dtype for x in given if isinstance(x, Value | torch.Tensor)]
    if any(isinstance(x, float) for x in given) and not any(dtype in FLOATS for dtype in dtypes):
        dtypes.append(tracer.float_type)
    widest = dtypes[0]
    for dtype in dtypes[1:]:
        widest = torch.promote_types(widest, dtype)
    if widest == torch.bool and any(isinstance(x, int) and not isinstance(x, bool) for x in given):
        widest = torch.int64
    return [cast(tracer, tracer.value(x, like=widest), widest) for x in given]


def _two_sided(name: str, operator: str, result: torch.dtype | None) -> None:
    @operation(name)
    def emit(tracer: Tracer, left: object, right: object) -> Value:
        both = _alike(tracer, left, right)
        shape = broadcast(both[0].shape, both[1].shape)
        return tracer.emit(operator, both, shape, result or both[0].dtype)


def _one_sided(name: str, operator: str) -> None:
    @operation(name)
    def emit(tracer: Tracer, x: Value, inplace: bool = False) -> Value:
        return tracer.emit(operator, [x], x.shape, x.dtype)


for _name, _operator in ARITHMETIC.items():
    _two_sided(_name, _operator, None)
for _name, _operator in COMPARISONS.items():
    _two_sided(_name, _operator, torch.bool)
_two_sided("and", "And", torch.bool)
for _name, _operator in ELEMENTWISE.items():
    _one_sided(_name, _operator)


@operation("to", "float")
def to(tracer: Tracer, x: Value, dtype: torch.dtype = torch.float32) -> Value:
    """Change the type."""
    return cast(tracer, x, dtype)


@operation("long")
def to_long(tracer: Tracer, x: Value) -> Value:
    """Change the type to whole numbers, towards zero."""
    return cast(tracer, x, torch.int64)


@operation("dropout")
def dropout(tracer: Tracer, x: Value, p: float = 0.5, training: bool = False, inplace: bool = False) -> Value:
    """Do nothing, as in evaluation."""
    assert not training, "bug: an export is of a model that learns no more"
    return x


@operation("gelu")
def gelu(tracer: Tracer, x: Value, approximate: str = "none") -> Value:
    """Emit the Gaussian error linear unit."""
    return tracer.emit("Gelu", [x], x.shape, x.dtype, approximate=approximate)


@operation("silu")
def silu(tracer: Tracer, x: Value, inplace: bool = False) -> Value:
    """Emit x · sigmoid(x) as one node."""
    return tracer.emit("QuickGelu", [x], x.shape, x.dtype, MICROSOFT, alpha=1.0)


@operation("embedding")
def embedding(tracer: Tracer, ids: Value, weight: torch.Tensor, *_: object, **__: object) -> Value:
    """Look up rows."""
    table = tracer.value(weight)
    tracer.looked_up.add(table.name)
    return tracer.emit("Gather", [table, ids], (*ids.shape, *table.shape[1:]), table.dtype)


@operation("linear")
def linear(tracer: Tracer, x: Value, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Value:
    """Multiply by a matrix, and add a bias if there is one; a head's few rows by an operator that does both."""
    if x.dim() == 2:
        shape = (x.shape[0], weight.shape[0])
        return tracer.emit("Gemm", [x, weight] if bias is None else [x, weight, bias], shape, x.dtype, transB=1)
    matrix = tracer.transposed(weight)
    product = tracer.emit("MatMul", [x, matrix], (*x.shape[:-1], matrix.shape[1]), x.dtype)
    return product if bias is None else tracer.emit("Add", [product, bias], product.shape, product.dtype)


@operation("matmul")
def matmul(tracer: Tracer, left: object, right: object) -> Value:
    """Multiply matrices, and stretch what is before them."""
    a, b = _alike(tracer, left, right)
    return tracer.emit("MatMul", [a, b], (*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1]), a.dtype)


@operation("layer_norm")
def layer_norm(
    tracer: Tracer, x: Value, shape: object, weight: torch.Tensor, bias: torch.Tensor | None, eps: float
) -> Value:
    """Normalise the last axis."""
    inputs = [x, weight] if bias is None else [x, weight, bias]
    return tracer.emit("LayerNormalization", inputs, x.shape, x.dtype, axis=-1, epsilon=eps)


@operation("rms_norm")
def rms_norm(tracer: Tracer, x: Value, shape: object, weight: torch.Tensor, eps: float) -> Value:
    """Normalise the last axis by its root mean square; ONNX Runtime has the operator since before ONNX had."""
    return tracer.emit("SimplifiedLayerNormalization", [x, weight], x.shape, x.dtype, axis=-1, epsilon=eps)


@operation("normalize")
def normalize(tracer: Tracer, x: Value, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Value:
    """Divide by the length along an axis."""
    shape = tuple(1 if axis == dim % x.dim() else size for axis, size in enumerate(x.shape))
    length = tracer.emit("ReduceL2", [x, tracer.integers(dim)], shape, x.dtype, keepdims=1)
    least = tracer.emit("Max", [length, tracer.value(eps, like=x.dtype)], shape, x.dtype)
    return tracer.emit("Div", [x, least], x.shape, x.dtype)


@operation("sum")
def reduce_sum(tracer: Tracer, x: Value, dim: int) -> Value:
    """Add up along an axis, which goes away."""
    shape = tuple(size for axis, size in enumerate(x.shape) if axis != dim % x.dim())
    return tracer.emit("ReduceSum", [x, tracer.integers(dim)], shape, x.dtype, keepdims=0)


@operation("amax")
def reduce_max(tracer: Tracer, x: Value, dim: int) -> Value:
    """Take the largest along an axis, which goes away."""
    shape = tuple(size for axis, size in enumerate(x.shape) if axis != dim % x.dim())
    return tracer.emit("ReduceMax", [x, tracer.integers(dim)], shape, x.dtype, keepdims=0)


@operation("cumsum")
def cumulative_sum(tracer: Tracer, x: Value, dim: int) -> Value:
    """Add up along an axis, each place with all before it."""
    return tracer.emit("CumSum", [x, tracer.value(dim, like=torch.int64)], x.shape, x.dtype)


@operation("clamp")
def clamp(tracer: Tracer, x: Value, min: float | None = None, max: float | None = None) -> Value:  # noqa: A002  # torch's names
    """Bound from below, from above, or both."""
    bounds = [None if bound is None else tracer.value(bound, like=x.dtype) for bound in (min, max)]
    return tracer.emit("Clip", [x, *(bounds if max is not None else bounds[:1])], x.shape, x.dtype)


@operation("where")
def where(tracer: Tracer, condition: Value, yes: object, no: object) -> Value:
    """Choose between two by a condition."""
    if isinstance(yes, float) and isinstance(no, float):
        yes, no = (tracer.value(each, like=tracer.float_type) for each in (yes, no))
    both = _alike(tracer, yes, no)
    return tracer.emit("Where", [condition, *both], broadcast(condition.shape, *(x.shape for x in both)), both[0].dtype)


@operation("zeros_like")
def zeros_like(tracer: Tracer, x: Value, dtype: torch.dtype | None = None) -> Value:
    """Return a number that is stretched to a shape where it is used."""
    return tracer.value(0, like=dtype or x.dtype)


@operation("ones_like")
def ones_like(tracer: Tracer, x: Value, dtype: torch.dtype | None = None) -> Value:
    """Return a number that is stretched to a shape where it is used."""
    return tracer.value(1, like=dtype or x.dtype)


@operation("gather")
def gather(tracer: Tracer, x: Value, dim: int, index: Value) -> Value:
    """Choose along an axis, each place its own."""
    return tracer.emit("GatherElements", [x, index], index.shape, x.dtype, axis=dim)


@operation("getitem")
def getitem(tracer: Tracer, x: object, index: Any) -> Value:
    """Take a place along an axis (an integer), or put a new axis in (None)."""
    value, axis = tracer.value(x), 0
    parts = list(index) if isinstance(index, tuple) else [index]
    if Ellipsis in parts:
        place = parts.index(Ellipsis)
        named = sum(part is not None and part is not Ellipsis for part in parts)
        parts[place : place + 1] = [slice(None)] * (value.dim() - named)
    for part in parts:
        if part is None:
            shape = (*value.shape[:axis], 1, *value.shape[axis:])
            value = tracer.emit("Unsqueeze", [value, tracer.integers(axis)], shape, value.dtype)
            axis += 1
        elif isinstance(part, int):
            shape = (*value.shape[:axis], *value.shape[axis + 1 :])
            inputs = [value, tracer.value(part, like=torch.int64)]
            value = tracer.emit("Gather", inputs, shape, value.dtype, axis=axis)
        elif part == slice(None):
            axis += 1
        else:
            raise NotImplementedError(f"a tensor's places {part} have no form in ONNX here; add it to {__name__}")
    return value


@operation("transpose")
def transpose(tracer: Tracer, x: Value, first: int, second: int) -> Value:
    """Let two axes change places."""
    order = list(range(x.dim()))
    order[first], order[second] = order[second], order[first]
    return permute(tracer, x, *order)


@operation("permute")
def permute(tracer: Tracer, x: Value, *order: int) -> Value:
    """Order the axes anew."""
    return tracer.emit("Transpose", [x], tuple(x.shape[axis] for axis in order), x.dtype, perm=list(order))


@operation("unflatten")
def unflatten(tracer: Tracer, x: Value, dim: int, sizes: Sequence[int]) -> Value:
    """Part an axis of known size."""
    dim, whole, known = dim % x.dim(), x.shape[dim], 1
    for size in sizes:
        known *= size if size > 0 else 1
    assert isinstance(whole, int), "bug: an axis of unknown size is parted"
    parts = [size if size > 0 else whole // known for size in sizes]
    return _reshaped(tracer, x, (*x.shape[:dim], *parts, *x.shape[dim + 1 :]))


@operation("flatten")
def flatten(tracer: Tracer, x: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    """Join neighbouring axes."""
    start, end, joined = start_dim % x.dim(), end_dim % x.dim(), 1
    for size in x.shape[start : end + 1]:
        assert isinstance(size, int), "bug: an axis of unknown size is joined"
        joined *= size
    return _reshaped(tracer, x, (*x.shape[:start], joined, *x.shape[end + 1 :]))


def _reshaped(tracer: Tracer, x: Value, shape: tuple[Dim, ...]) -> Value:
    """Give another shape; axes of unknown size stay where they are, which ONNX writes as 0."""
    sizes = [size if isinstance(size, int) else 0 for size in shape]
    assert all(size or x.shape[axis] == shape[axis] for axis, size in enumerate(sizes)), "bug: an axis moves"
    return tracer.emit("Reshape", [x, tracer.integers(*sizes)], shape, x.dtype)


@operation("expand")
def expand(tracer: Tracer, x: object, *sizes: Dim | tuple[Dim, ...]) -> Value:
    """Stretch axes of size 1; −1 keeps what is there."""
    value = tracer.value(x)
    wanted: list[Dim] = list(sizes[0]) if isinstance(sizes[0], tuple) else list(sizes)  # type: ignore[arg-type]  # either
    kept = [1] * (len(wanted) - value.dim()) + list(value.shape)
    shape = tuple(own if size == -1 else size for size, own in zip(wanted, kept, strict=True))
    return tracer.emit(
        "Expand", [value, tracer.sizes([1 if size == -1 else size for size in wanted])], shape, value.dtype
    )


@operation("expand_as")
def expand_as(tracer: Tracer, x: object, other: Value) -> Value:
    """Stretch to another's shape."""
    return expand(tracer, x, *other.shape)


@operation("cat")
def cat(tracer: Tracer, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Lay tensors side by side."""
    dim %= tensors[0].dim()
    sizes = [tensor.shape[dim] for tensor in tensors]
    joined: Dim = sum(size for size in sizes if isinstance(size, int))
    assert all(isinstance(size, int) for size in sizes), "bug: axes of unknown size are laid side by side"
    shape = (*tensors[0].shape[:dim], joined, *tensors[0].shape[dim + 1 :])
    return tracer.emit("Concat", tensors, shape, tensors[0].dtype, axis=dim)


@operation("conv2d")
def conv2d(
    tracer: Tracer,
    x: Value,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
    *_: object,
) -> Value:
    """Map patches."""
    x = cast(tracer, x, tracer.value(weight).dtype)
    sides = [
        (int(size) + 2 * pad - kernel) // step + 1
        for size, kernel, step, pad in zip(x.shape[2:], weight.shape[2:], stride, padding, strict=True)
    ]
    shape = (x.shape[0], weight.shape[0], *sides)
    return tracer.emit("Conv", [x, weight, bias], shape, x.dtype, strides=list(stride), pads=[*padding, *padding])
