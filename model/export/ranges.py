"""How large the numbers are that each product is given, seen while sample texts go through float32 graphs.

It is what constant scales of activations are made of (`int8-static`). Texts go one by one, so that no padding counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from model.export.graph import Array, Graph
from model.export.naive import NaiveDecoder, NaiveGraph, text_inputs
from model.export.samples import Sample, Samples
from model.package import CacheShape
from model.package.inputs import encoder_inputs
from model.progress import with_bar

CHUNK = 256  # tokens of a text at a time
LEVELS = 255  # steps between the least and the largest number of 8 bits


@dataclass
class Range:
    """The least and the largest number that each channel of an activation (…, K) has had, both (K,).

    Numbers between 0 and what was seen count as seen: 0 is exact in any scale.
    """

    least: Array
    largest: Array

    @classmethod
    def empty(cls, channels: int) -> Range:
        """Return the range of an activation of which nothing has been seen."""
        return cls(np.zeros(channels, np.float32), np.zeros(channels, np.float32))

    def see(self, values: Array) -> None:
        """Count in some numbers (…, K)."""
        rows = values.reshape(-1, values.shape[-1])
        np.minimum(self.least, rows.min(axis=0, initial=0), out=self.least)
        np.maximum(self.largest, rows.max(axis=0, initial=0), out=self.largest)

    @property
    def sizes(self) -> Array:
        """Return the largest size of each channel (K,)."""
        return np.maximum(-self.least, self.largest)

    def divided_by(self, scales: Array) -> Range:
        """Return the range of the same activation with each channel divided by a positive number of its own (K,)."""
        return Range(self.least / scales, self.largest / scales)

    def step_and_zero_point(self) -> tuple[np.float32, np.uint8]:
        """Return what makes unsigned integers of 8 bits of the numbers: rint(x / step) + zero point."""
        least, largest = float(self.least.min()), float(self.largest.max())
        step = np.float32((largest - least) / LEVELS or 1.0)
        return step, np.uint8(np.clip(np.rint(-least / step), 0, LEVELS))


Ranges = dict[str, Range]  # by the activation's name


def find_ranges(
    graphs: Mapping[str, Graph], samples: Samples, cache: CacheShape | None, scratch: Path
) -> dict[str, Ranges]:
    """Return the ranges of what each graph's products with constant matrices are given, by graph.

    `graphs` are a reader's encoder, a decoder with its `cache`, or both of a translator, which translates greedily. In
    `scratch` they are written whole for a while, in float32.
    """
    with TemporaryDirectory(dir=scratch) as folder:
        watched = {name: _Watched(graph, Path(folder) / f"{name}.onnx") for name, graph in graphs.items()}
        for sample in with_bar(samples.rows, desc="ranges of activations"):
            ids = np.array([sample.ids])
            if cache is None:
                inputs: dict[str, Any] = text_inputs([sample.ids], [sample.segments] if sample.segments else None)
                watched["encoder"].run({**inputs, "logit_positions": np.arange(ids.size)[None]})
            elif "encoder" in watched:
                _translate(watched["encoder"], watched["decoder"], sample, samples, cache)
            else:
                decoder = NaiveDecoder(watched["decoder"], cache, 1, ids.size)
                for start in range(0, ids.size, CHUNK):  # or a long text's logits would take gigabytes
                    chunk = ids[:, start : start + CHUNK]
                    decoder.step(chunk, np.array([chunk.size]), start)
    return {name: graph.ranges for name, graph in watched.items()}


class _Watched(NaiveGraph):
    """A graph that notes what its products are given."""

    def __init__(self, graph: Graph, path: Path) -> None:
        self._taken = {given.name for given in graph.inputs}
        self.ranges = {product.given: Range.empty(product.matrix.shape[0]) for product in graph.products()}
        outputs = [output.name for output in graph.outputs]
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in self.ranges]
        Graph(graph.nodes, graph.inputs, [*graph.outputs, *values], graph.weights).save(path)
        super().__init__(path, [*outputs, *self.ranges])

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the graph's own outputs; inputs that it does not take are left out."""
        answers = super().run({name: value for name, value in inputs.items() if name in self._taken})
        for name, seen in self.ranges.items():
            seen.see(answers.pop(name))
        return answers


def _translate(encoder: NaiveGraph, decoder: NaiveGraph, sample: Sample, samples: Samples, cache: CacheShape) -> None:
    lengths = np.array([len(sample.ids)])
    cross = encoder.run(encoder_inputs(np.array([sample.ids]), lengths))
    steps = min(2 * len(sample.ids) + 10, samples.max_positions)
    search = NaiveDecoder(decoder, cache, 1, steps)
    search.set_source(cross, lengths)
    forced, token = list(sample.forced), samples.start
    for position in range(steps):
        logits = search.step(np.array([[token]]), np.ones(1, np.int64), position)
        token = forced.pop(0) if forced else int(logits[0, 0].argmax())
        if token == samples.end:
            break
