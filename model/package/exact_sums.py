"""What ONNX Runtime is asked for so that it sums products of 8-bit integers exactly on x86 processors without VNNI."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import onnx

from model.package.manifest import PackageError
from model.package.processor import sums_up_in_16_bits

LARGEST = 2**31 - 1  # bytes of a protobuf message
# Its names of settings: "1" where sums shall be exact, and where weights lie that are not in a graph handed to it.
EXACT_SUMS = "session.x64quantprecision"
WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"


class Settings(Protocol):
    """What is used of ONNX Runtime's `SessionOptions`."""

    def add_session_config_entry(self, key: str, value: str, /) -> None:
        """Set a setting by its name."""


def ask_for_exact_sums(options: Settings, graph: Path | bytes) -> bytes | None:
    """Let a session with these options sum exactly, where the processor needs to be asked for that.

    Return what it has to open instead of the graph; None where that is the graph as it is. Raises `PackageError` as
    `_with_own_matrices` does.
    """
    if not sums_up_in_16_bits():  # as ONNX Runtime then does, unless it is asked
        return None
    options.add_session_config_entry(EXACT_SUMS, "1")
    return _with_own_matrices(graph)


def _with_own_matrices(graph: Path | bytes) -> bytes | None:
    """Return a graph in which each product has its 8-bit matrix to itself; None if this is such a graph.

    Asked for exact sums, ONNX Runtime replaces the matrices, and fails at one that several products take: as the
    layers of an ALBERT do, or turned, as `/explain` asks each layer of a decoder for its answer. Weights that lie
    beside the graph stay there. Raises `PackageError` where it would become larger than a graph can be.
    """
    model = onnx.load_from_string(graph) if isinstance(graph, bytes) else onnx.load(graph, load_external_data=False)
    matrices = {each.name: each for each in model.graph.initializer if each.data_type == onnx.TensorProto.INT8}
    turned = {
        node.output[0]: node for node in model.graph.node if node.op_type == "Transpose" and node.input[0] in matrices
    }
    taken: set[str] = set()
    copies: list[onnx.TensorProto] = []
    turns: list[onnx.NodeProto] = []
    for node in model.graph.node:
        name = node.input[1] if node.op_type == "MatMulIntegerToFloat" else ""
        if name not in taken:
            taken |= {name} & (matrices.keys() | turned.keys())
            continue
        own = node.input[1] = f"{name}_of_{node.output[0]}"
        copy = onnx.TensorProto()
        if name in turned:
            turn = onnx.NodeProto()
            turn.CopyFrom(turned[name])
            copy.CopyFrom(matrices[turn.input[0]])
            turn.output[0], turn.input[0] = own, f"{own}_turned"
            copy.name = turn.input[0]
            turns.append(turn)
        else:
            copy.CopyFrom(matrices[name])
            copy.name = own
        copies.append(copy)
    if not copies:
        return None
    model.graph.initializer.extend(copies)
    for turn in turns:
        model.graph.node.insert(0, turn)
    if model.ByteSize() > LARGEST:
        where = "a graph" if isinstance(graph, bytes) else str(graph)
        raise PackageError(
            f"{where}: several layers share a matrix, of which each needs a copy on this processor, which has no VNNI; "
            "all come to more than 2 GiB: import the model in int8-blocks or float32"
        )
    content: bytes = model.SerializeToString()
    return content
