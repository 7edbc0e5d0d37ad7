"""One of a package's graphs, with its attention and hidden states as outputs: what `/explain` runs.

It is made from the graph that is served when it is first asked for, by bytes behind it, and shares nothing with the
sessions that serve. So it needs no other file in the package, and whoever never explains pays nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from mmap import ACCESS_READ, mmap
from pathlib import Path

import numpy as np

from service.engine.arrays import Array
from service.engine.explaining.anatomy import Kind, Stack, anatomy
from service.engine.explaining.lens import Answers, add_lens, answers
from service.engine.explaining.onnx_graph import Addition, OnnxGraph, beside_weights
from service.engine.explaining.weights import attention_weights
from service.engine.session import Session, SessionOptions

OWN_THREAD = SessionOptions(threads=1, spin_us=0)


@dataclass(frozen=True)
class Look:
    """Which attention is wanted: of which layers and heads; None: of all."""

    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None


NOWHERE = Look(layers=())


@dataclass(frozen=True)
class Seen:
    """What was seen of one row: T tokens, S keys, L layers, H heads."""

    attention: dict[Kind, Array]  # (L, H, T, S), float32
    states: dict[Kind, Array]  # (L + 1, T, d_model), float32: embeddings, then each block's; the last is normalised
    answers: Answers | None  # of a decoder
    outputs: dict[str, Array]  # of the graph itself


class ExplainedGraph:
    """A graph that shows what happens in it, in a session of its own."""

    def __init__(self, path: Path, outputs: list[str], num_encoder_layers: int) -> None:
        path = path.resolve()  # beside which ONNX Runtime looks for weights
        model = _mapped(path)
        graph = OnnxGraph.of(model)
        self._anatomy = anatomy(graph, num_encoder_layers)
        self._outputs = outputs
        addition = Addition()
        shown = [name for attention in self._anatomy.attentions for name in attention.names]
        for stack in self._anatomy.stacks:
            shown += [*stack.states, stack.final]
        given = {name for node in graph.nodes for name in node.outputs} | graph.weights
        self._given = sorted(set(shown) & given)  # what is an input is known to who runs the graph
        for name in sorted(set(self._given) - set(outputs)):
            addition.output(name)
        self._answers: list[str] = []
        if "logits" in outputs and self._decodes(outputs):
            self._answers = add_lens(addition, graph, self._anatomy.stacks[-1])
        self._session = Session(path, OWN_THREAD, beside_weights(model, path.name) + addition.written())

    @staticmethod
    def _decodes(outputs: list[str]) -> bool:
        return any(name.startswith("present") for name in outputs)

    def run(self, inputs: Mapping[str, Array], look: Look, past: int = 0) -> Seen:
        """Run the graph on one row, whose first new token is at position `past`."""
        names = list(dict.fromkeys([*self._outputs, *self._given, *self._answers]))
        outputs = dict(zip(names, self._session.run(inputs, names), strict=True))
        values = {**inputs, **outputs}
        new = inputs["input_ids"].shape[1]
        found: dict[Kind, list[Array]] = {}
        for attention in self._anatomy.attentions:
            if look.layers is None or attention.layer in look.layers:
                length = values[attention.key].shape[2] if attention.kind == "cross" else past + new
                weights = attention_weights(attention, values, past, length)
                found.setdefault(attention.kind, []).append(weights if look.heads is None else weights[[*look.heads]])
        states = {stack.kind: _states(stack, values) for stack in self._anatomy.stacks}
        depths = len(self._anatomy.stacks[-1].states)
        return Seen(
            {kind: np.stack(layers) for kind, layers in found.items()},
            states,
            answers(outputs, depths) if self._answers else None,
            {name: outputs[name] for name in self._outputs},
        )


def _mapped(path: Path) -> memoryview:
    """Return a file's bytes, which take no memory of the process's own, as long as anybody has them."""
    with path.open("rb") as file:
        return memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))


def _states(stack: Stack, values: Mapping[str, Array]) -> Array:
    names = [*stack.states[:-1], stack.final]
    return np.stack([values[name][0].astype(np.float32) for name in names])
