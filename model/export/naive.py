"""Exported graphs run the plain way: one batch, a new cache array every step. For verification and evaluation only."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from model.export.graphs import GraphFile
from model.package import CacheShape, Manifest
from model.package.exact_sums import WEIGHTS_FOLDER, ask_for_exact_sums
from model.package.inputs import cache_names, decoder_inputs, encoder_inputs, pad_rows, source_inputs

Array = NDArray[Any]


class NaiveGraph:
    """One graph in an ONNX Runtime session."""

    def __init__(self, path: Path, outputs: Sequence[str]) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
        graph = ask_for_exact_sums(options, path)
        if graph is not None:
            options.add_session_config_entry(WEIGHTS_FOLDER, str(path.parent))
        self._session = onnxruntime.InferenceSession(
            path if graph is None else graph, options, providers=["CPUExecutionProvider"]
        )
        self._outputs = list(outputs)
        # A decoder's cache has the precision of its weights.
        cached = [given.type for given in self._session.get_inputs() if given.name.startswith("past")]
        self.cache_dtype = "float16" if "tensor(float16)" in cached else "float32"

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs by name."""
        return dict(zip(self._outputs, self._session.run(self._outputs, dict(inputs)), strict=True))


def open_graphs(graphs: Mapping[str, GraphFile]) -> dict[str, NaiveGraph]:
    """Open exported graphs by name."""
    return {name: NaiveGraph(graph.path, graph.outputs) for name, graph in graphs.items()}


def open_package(folder: Path, manifest: Manifest) -> dict[str, NaiveGraph]:
    """Open a package's graphs by name."""
    return {name: NaiveGraph(folder / graph.file, graph.outputs) for name, graph in manifest.graphs.items()}


def text_inputs(rows: Sequence[Sequence[int]], segments: Sequence[Sequence[int]] | None = None) -> dict[str, Array]:
    """Return the inputs of an encoder's graph: of a classifier, or of sentence vectors."""
    ids, lengths = pad_rows(rows, 0)
    segment_ids = pad_rows(segments, 0)[0] if segments else np.zeros_like(ids)
    return encoder_inputs(ids, lengths, segment_ids)


class NaiveDecoder:
    """A decoder graph with its KV cache; rows are fixed when made."""

    def __init__(self, graph: NaiveGraph, shape: CacheShape, rows: int, capacity: int) -> None:
        self._graph = graph
        self._layers = shape.num_layers
        size = (rows, shape.num_kv_heads, capacity, shape.head_dim)
        self._past = [np.zeros(size, graph.cache_dtype) for _ in range(2 * shape.num_layers)]
        self._cross: dict[str, Array] = {}

    def set_source(self, cross: Mapping[str, Array], lengths: Array) -> None:
        """Give a translator's rows their sources: the encoder graph's outputs, and the sources' lengths (B,)."""
        self._cross = source_inputs(cross, lengths)

    def step(self, ids: Array, lengths: Array, past: int | Array) -> Array:
        """Feed new tokens (B, T), `lengths` (B,) of them real, behind `past` tokens; return logits (B, T, V)."""
        rows, new = ids.shape
        first = np.broadcast_to(np.asarray(past, np.int64), (rows,))
        wanted = np.broadcast_to(np.arange(new), (rows, new)).astype(np.int64)
        inputs = {
            **decoder_inputs(ids, first, lengths, wanted),
            **dict(zip(cache_names("past", self._layers), self._past, strict=True)),
            **self._cross,
        }
        outputs = self._graph.run(inputs)
        self._past = [outputs[name] for name in cache_names("present", self._layers)]
        return outputs["logits"].astype(np.float32, copy=False)

    def reorder(self, parents: Array) -> None:
        """Let each row continue another: the parents' caches (B,) take the rows' places."""
        self._past = [array[parents] for array in self._past]
