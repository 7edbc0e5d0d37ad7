"""An ONNX graph as its file has it: its nodes and the names of its weights; and what is put behind the graph.

The numbers are those of the fields in ONNX's schema (`onnx.proto`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from service.engine.explaining.protobuf import (
    Value,
    bytes_field,
    fields,
    number_field,
    placed_fields,
    same_field,
    signed,
)

MODEL_GRAPH = 7
GRAPH_NODE, GRAPH_INITIALIZER, GRAPH_INPUT, GRAPH_OUTPUT = 1, 5, 11, 12
NODE_INPUT, NODE_OUTPUT, NODE_NAME, NODE_OPERATOR, NODE_ATTRIBUTE = 1, 2, 3, 4, 5
ATTRIBUTE_NAME, ATTRIBUTE_FLOAT, ATTRIBUTE_INTEGER, ATTRIBUTE_TYPE, INTEGER = 1, 2, 3, 20, 2
TENSOR_DIMENSION, TENSOR_TYPE, TENSOR_NAME, TENSOR_DATA = 1, 2, 8, 9
TENSOR_BESIDE, TENSOR_LOCATION, BESIDE, KEY, SAID = 13, 14, 1, 1, 2  # of a weight that is not in the graph
VALUE_NAME, VALUE_TYPE, TYPE_TENSOR, ELEMENT_TYPE, SHAPE, SHAPE_DIMENSION = 1, 2, 1, 1, 2, 1
FLOAT32, INT32, INT64 = 1, 6, 7  # ONNX's numbers of the types
SMALL = 4096  # bytes of a weight that stays in the graph


@dataclass(frozen=True)
class Node:
    """One operator's call."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, float] = field(default_factory=dict)  # those that are numbers
    rest: bytes = b""  # its other fields as they are written: operator, domain, attributes

    def input(self, place: int) -> str:
        """Return the name of an input, empty if it is left out."""
        return self.inputs[place] if place < len(self.inputs) else ""

    def output(self, place: int) -> str:
        """Return the name of an output, empty if nobody asks for it."""
        return self.outputs[place] if place < len(self.outputs) else ""

    def renamed(self, names: Mapping[str, str]) -> bytes:
        """Write the same operator with other names of what goes in and comes out."""
        inputs = (bytes_field(NODE_INPUT, names.get(name, name)) for name in self.inputs)
        outputs = (bytes_field(NODE_OUTPUT, names.get(name, name)) for name in self.outputs)
        return b"".join([*inputs, *outputs, self.rest])


@dataclass(frozen=True)
class OnnxGraph:
    """The nodes in the order of computing, and the names of the constants."""

    nodes: tuple[Node, ...]
    weights: frozenset[str]

    @classmethod
    def of(cls, model: memoryview) -> OnnxGraph:
        """Read a model's file; its weights are passed over."""
        graph = next(_view(value) for number, value in fields(model) if number == MODEL_GRAPH)
        nodes, weights = [], set()
        for number, value in fields(graph):
            if number == GRAPH_NODE:
                nodes.append(_node(_view(value)))
            elif number == GRAPH_INITIALIZER:
                weights.add(next(_text(of) for each, of in fields(_view(value)) if each == TENSOR_NAME))
        return cls(tuple(nodes), frozenset(weights))


def _node(message: memoryview) -> Node:
    inputs, outputs, operator, rest = [], [], "", []
    attributes: dict[str, float] = {}
    for number, value in fields(message):
        if number == NODE_INPUT:
            inputs.append(_text(value))
        elif number == NODE_OUTPUT:
            outputs.append(_text(value))
        elif number != NODE_NAME:
            rest.append(bytes_field(number, bytes(_view(value))))
        if number == NODE_OPERATOR:
            operator = _text(value)
        elif number == NODE_ATTRIBUTE:
            attributes |= _number_attribute(_view(value))
    return Node(operator, tuple(inputs), tuple(outputs), attributes, b"".join(rest))


def _number_attribute(message: memoryview) -> dict[str, float]:
    """Return an attribute if it is a single number."""
    name, value = "", None
    for number, of in fields(message):
        if number == ATTRIBUTE_NAME:
            name = _text(of)
        elif number == ATTRIBUTE_FLOAT:
            (value,) = struct.unpack("<f", _view(of))
        elif number == ATTRIBUTE_INTEGER:
            value = signed(of)
    return {} if value is None else {name: value}


def _text(value: Value) -> str:
    return bytes(_view(value)).decode()


def _view(value: Value) -> memoryview:
    assert isinstance(value, memoryview), "bug: a number stands where the schema has text, bytes or a message"
    return value


def beside_weights(model: memoryview, file: str) -> bytes:
    """Write a model whose large weights stay in its file, of this name, from which ONNX Runtime maps them."""
    return b"".join(
        bytes_field(number, _beside_weights(_view(value), place, file))
        if number == MODEL_GRAPH
        else same_field(number, value)
        for number, place, value in placed_fields(model)
    )


def _beside_weights(graph: memoryview, start: int, file: str) -> bytes:
    """Write a graph that begins at `start` of its file."""
    return b"".join(
        bytes_field(number, _left_in(file, _view(value), start + place))
        if number == GRAPH_INITIALIZER
        else same_field(number, value)
        for number, place, value in placed_fields(graph)
    )


def _left_in(file: str, tensor: memoryview, start: int) -> bytes:
    """Write a weight by where in the file it is; a small one, or one that is in another file, as it is."""
    for number, place, value in placed_fields(tensor):
        if number == TENSOR_DATA and len(data := _view(value)) >= SMALL:
            said = {"location": file, "offset": f"{start + place}", "length": f"{len(data)}"}
            rest = [same_field(each, of) for each, of in fields(tensor) if each != TENSOR_DATA]
            entries = (bytes_field(KEY, key) + bytes_field(SAID, word) for key, word in said.items())
            rest += [bytes_field(TENSOR_BESIDE, entry) for entry in entries]
            return b"".join([*rest, number_field(TENSOR_LOCATION, BESIDE)])
    return bytes(tensor)


class Addition:
    """Nodes, constants, inputs and outputs to be put behind a model."""

    def __init__(self) -> None:
        self._fields: list[bytes] = []

    def written(self) -> bytes:
        """Return the bytes: a model of which there is only a graph, which has only these."""
        return bytes_field(MODEL_GRAPH, b"".join(self._fields))

    def output(self, name: str) -> None:
        """Let a value come out; its type is known where it is made."""
        self._fields.append(bytes_field(GRAPH_OUTPUT, bytes_field(VALUE_NAME, name)))

    def input(self, name: str, element: int, dimensions: int) -> None:
        """Let a tensor of any sizes go in."""
        shape = bytes_field(SHAPE_DIMENSION, b"") * dimensions
        tensor = number_field(ELEMENT_TYPE, element) + bytes_field(SHAPE, shape)
        value = bytes_field(VALUE_NAME, name) + bytes_field(VALUE_TYPE, bytes_field(TYPE_TENSOR, tensor))
        self._fields.append(bytes_field(GRAPH_INPUT, value))

    def constant(self, name: str, values: Sequence[int]) -> str:
        """Add a list of whole numbers; returns its name."""
        sizes = number_field(TENSOR_DIMENSION, len(values)) + number_field(TENSOR_TYPE, INT64)
        data = bytes_field(TENSOR_NAME, name) + bytes_field(TENSOR_DATA, struct.pack(f"<{len(values)}q", *values))
        self._fields.append(bytes_field(GRAPH_INITIALIZER, sizes + data))
        return name

    def node(self, operator: str, inputs: Iterable[str], outputs: Iterable[str], **attributes: int) -> None:
        """Add an operator of ONNX's own, with attributes that are whole numbers."""
        rest = bytes_field(NODE_OPERATOR, operator)
        for name, value in attributes.items():
            number = number_field(ATTRIBUTE_INTEGER, value) + number_field(ATTRIBUTE_TYPE, INTEGER)
            rest += bytes_field(NODE_ATTRIBUTE, bytes_field(ATTRIBUTE_NAME, name) + number)
        self.copy(Node(operator, tuple(inputs), tuple(outputs), rest=rest), {})

    def copy(self, node: Node, names: Mapping[str, str]) -> None:
        """Add a node once more, with other names of what goes in and comes out."""
        self._fields.append(bytes_field(GRAPH_NODE, node.renamed(names)))
