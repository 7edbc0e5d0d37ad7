from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from model.export import graph as graphs
from model.export.graph import Graph
from model.export.operations import OPERATIONS
from model.export.trace import Tracer, as_tensor

TABLE = nn.Embedding(9, 4)
WEIGHT, BIAS = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(4))
KERNEL = nn.Parameter(torch.randn(5, 3, 2, 2))
X, IDS, PIXELS = torch.randn(2, 3, 4), torch.tensor([[1, 8, 0], [3, 3, 5]]), torch.randn(2, 3, 6, 6)

FUNCTIONS: dict[str, tuple[Callable[..., Tensor], Tensor]] = {
    "arithmetic": (lambda x: (2 * x - 1) / 3 + (1 - x) * BIAS - -x, X),
    "comparisons": (lambda x: torch.where((x < 0.5) & (x >= -0.5), x, 0.0) * (x > -0.1) * (x <= 0.4), X),
    "bools are counted": (lambda x: (x > 2) * 3 + x.abs().clamp(min=1, max=6), IDS),
    "logarithms and whole numbers": (lambda x: (x.abs().float().clamp(min=1).log() * 2.5).ceil().long(), IDS),
    "types are widened": (lambda x: x.long() * x.float() + x.sign(), IDS),
    "numbers that are stretched": (lambda x: torch.zeros_like(x) + torch.ones_like(x) * x, X),
    "axes": (lambda x: x.transpose(1, 2).permute(1, 0, 2)[..., None][None, :, 1], X),
    "rows and columns": (lambda x: x[:, 0].T @ x[:, 1], X),
    "heads": (lambda x: x.unflatten(-1, (2, -1)).transpose(1, 2).transpose(1, 2).flatten(2), X),
    "stretching": (lambda x: x[:, :, None].expand(-1, -1, 5, -1), X),
    "side by side": (lambda x: torch.cat((x, BIAS.expand_as(x)), dim=-1), X),
    "sums": (lambda x: x.sum(1) / (x > 0).long().sum(-1)[:, 0][:, None].clamp(min=1), X),
    "choosing": (lambda x: x.gather(1, (x > 0).long()), X),
    "rows of a table": (TABLE, IDS),
    "tied words": (lambda x: functional.linear(TABLE(x), TABLE.weight), IDS),
    "a linear map": (lambda x: functional.linear(x, WEIGHT), X),
    "a few rows": (lambda x: functional.linear(x[:, 0], WEIGHT, WEIGHT[:, 0]), X),
    "layer norm": (lambda x: functional.layer_norm(x, (4,), BIAS, None, 1e-5), X),
    "rms norm": (lambda x: functional.rms_norm(x, (4,), BIAS, 1e-5), X),
    "length 1": (lambda x: functional.normalize(x.float(), dim=-1), X),
    "activations": (lambda x: functional.gelu(x) + functional.gelu(x, approximate="tanh") * functional.silu(x), X),
    "more activations": (lambda x: torch.sigmoid(x) * torch.tanh(x) + functional.relu(x), X),
    "dropout": (lambda x: functional.dropout(x, 0.5, training=False) * 2, X),
    "patches": (lambda x: functional.conv2d(x, KERNEL, None, (2, 2), (1, 1)).flatten(2), PIXELS),
}


class Weights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.weight, self.bias, self.kernel = TABLE, WEIGHT, BIAS, KERNEL


def traced(function: Callable[..., Any], example: Tensor, float_type: torch.dtype = torch.float32) -> Graph:
    tracer = Tracer(Weights(), OPERATIONS, float_type)
    given = tracer.input("x", ["rows", *example.shape[1:]], example.dtype)
    tracer.output("y", function(as_tensor(given)))
    tracer.graph.drop_unused()
    return tracer.graph


def run(graph: Graph, folder: Path, x: Tensor) -> np.ndarray[Any, Any]:
    graph.save(folder / "graph.onnx")
    session = onnxruntime.InferenceSession(folder / "graph.onnx", providers=["CPUExecutionProvider"])
    answer: np.ndarray[Any, Any] = session.run(["y"], {"x": x.numpy()})[0]
    return answer


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_traced_computes_what_torch_does(name: str, tmp_path: Path) -> None:
    function, x = FUNCTIONS[name]

    with torch.no_grad():
        expected = function(x).numpy()
    graph = traced(function, x)
    answer = run(graph, tmp_path, x)
    assert answer.dtype == expected.dtype
    sizes = zip(graph.outputs[0].type.tensor_type.shape.dim, answer.shape, strict=True)
    assert [declared.dim_value or found for declared, found in sizes] == list(answer.shape)
    np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("function", [torch.cumprod, lambda x, dim: x.cumprod(dim)])
def test_a_function_that_has_no_form_is_named(function: Callable[..., Tensor]) -> None:
    with pytest.raises((NotImplementedError, AttributeError), match=r"cumprod.* has no form in ONNX here"):
        traced(lambda x: function(x, dim=1), X)


def test_weights_are_read_when_they_are_written_and_not_before(tmp_path: Path) -> None:
    weights = Weights()
    graph = traced(lambda x: functional.linear(x, weights.weight), X)
    with torch.no_grad():
        weights.weight.zero_()

    assert not run(graph, tmp_path, X).any()
    nn.init.normal_(WEIGHT)


def test_halves_are_made_of_the_weights_while_writing(tmp_path: Path) -> None:
    graph = traced(lambda x: functional.linear(TABLE(x), WEIGHT), IDS, torch.float16)

    assert WEIGHT.dtype == torch.float32
    assert run(graph, tmp_path, IDS).dtype == np.float16


def test_large_weights_lie_beside_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "ONE_FILE_BYTES", 10)
    monkeypatch.setattr(graphs, "SMALL_BYTES", 90)
    graph = traced(lambda x: functional.linear(TABLE(x), WEIGHT), IDS)

    with torch.no_grad():
        expected = functional.linear(TABLE(IDS), WEIGHT)
    np.testing.assert_allclose(run(graph, tmp_path, IDS), expected.numpy(), atol=1e-6)
    assert {path.name for path in tmp_path.iterdir()} == {"graph.onnx", "graph.onnx.data"}
    stored = onnx.load(tmp_path / "graph.onnx", load_external_data=False).graph.initializer
    assert not any(len(tensor.raw_data) > 90 for tensor in stored)
    offsets = [entry.value for tensor in stored for entry in tensor.external_data if entry.key == "offset"]
    assert offsets and all(int(offset) % graphs.ALIGNMENT == 0 for offset in offsets)


def test_what_nobody_needs_is_left_out() -> None:
    graph = traced(lambda x: (functional.linear(x, WEIGHT), x + 1)[1], X)

    assert [node.op_type for node in graph.nodes] == ["Add"]
    assert not any("weight" in name for name in graph.weights)
