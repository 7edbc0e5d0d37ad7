"""Integrated gradients (Sundararajan et al. 2017), which the service cannot take: its graphs have no way back.

For the comparison the bundled encoders' weights of 8 bits go back into the torch model, as float32.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from model.architectures import TextEncoder, build
from model.config import TransformerConfig
from model.package import Manifest
from service.engine.arrays import Array
from service.engine.inputs import TextInput

STEPS = 32


def torch_model(folder: Path, manifest: Manifest) -> TextEncoder:
    """Return a bundled encoder's torch model, its products with the weights of its graph."""
    graph = onnx.load(folder / manifest.graphs["encoder"].file).graph
    weights = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    model = build(TransformerConfig.from_dict(manifest.config)).eval()
    assert isinstance(model, TextEncoder)
    state: dict[str, Any] = {}
    for name, parameter in model.state_dict().items():
        if name in weights:
            state[name] = weights[name]
        elif f"{name}_int8" in weights:
            state[name] = weights[f"{name}_int8"] * weights[f"{name}_scales"]
        else:
            assert parameter is not None and ".blocks." in name, f"{name} is not in the graph"
    state |= _of_blocks(graph, weights, manifest.config["d_model"])
    model.load_state_dict({name: torch.tensor(np.asarray(values, np.float32)) for name, values in state.items()})
    return model


def _of_blocks(graph: onnx.GraphProto, weights: dict[str, Array], width: int) -> dict[str, Array]:
    """Return the matrices of the blocks, four of each: query, key and value joined, output, and feed-forward."""
    products = [node for node in graph.node if node.op_type == "MatMulIntegerToFloat"]
    matrices = [weights[node.input[1]].T * weights[node.input[3]][:, None] for node in products]
    added = [weights[node.input[1]] for node in graph.node if node.op_type == "Add" and node.input[1] in weights]
    joined_biases = [values for values in added if values.shape == (3 * width,)]
    state: dict[str, Array] = {}
    for layer, bias in enumerate(joined_biases):
        joined, output, expand, contract = matrices[4 * layer : 4 * layer + 4]
        block = f"encoder.blocks.{layer}"
        for number, part in enumerate(("query", "key", "value")):
            rows = slice(number * width, (number + 1) * width)
            state[f"{block}.self_attention.{part}.weight"] = joined[rows]
            state[f"{block}.self_attention.{part}.bias"] = bias[rows]
        state[f"{block}.self_attention.output.weight"] = output
        state[f"{block}.feed_forward.expand.weight"] = expand
        state[f"{block}.feed_forward.contract.weight"] = contract
    return state


def integrated_gradients(model: TextEncoder, text: TextInput, places: list[int], label: int, baseline: int) -> Array:
    """Return the gradients of a label's log odds along the way from `baseline` at each place, times that way."""
    table = model.embeddings.words.weight.detach()
    ids = torch.tensor(text.ids)
    blank = ids.clone()
    blank[places] = baseline
    way = table[ids] - table[blank]
    shares = (torch.arange(STEPS) + 0.5) / STEPS
    words = (table[blank] + shares[:, None, None] * way).requires_grad_()
    hook = model.embeddings.words.register_forward_hook(lambda *_: words)
    logits: Tensor = model(ids.expand(STEPS, -1), torch.ones(STEPS, len(ids)))
    hook.remove()
    others = [number for number in range(logits.shape[1]) if number != label]
    (logits[:, label] - logits[:, others].logsumexp(1)).sum().backward()
    assert words.grad is not None
    return np.asarray((way * words.grad.mean(0)).sum(-1)[places])
