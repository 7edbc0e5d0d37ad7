"""A model's graphs as files, as precise as asked."""

from __future__ import annotations

from pathlib import Path

import torch

from model.architectures import DecoderLM, EncoderDecoder, Transformer, VisionTransformer
from model.export.candidates import candidates_graph
from model.export.fuse import fuse, fuse_norms
from model.export.graph import Graph
from model.export.graphs import GraphFile, save_graph, trace_graphs
from model.export.prepare import padded_width
from model.export.quantize import quantize
from model.export.ranges import Ranges, find_ranges
from model.export.samples import Samples
from model.export.smooth import smooth
from model.package import CacheShape, PackageError
from model.package.manifest import Precision


def write_graphs(
    model: Transformer, folder: Path, precision: Precision = "float32", samples: Samples | None = None
) -> dict[str, GraphFile]:
    """Write a model's graphs into a folder; returns them by name: encoder, decoder, candidates.

    `samples` are what `int8-static` finds its scales by; raises `PackageError` where it has none.
    """
    graphs = trace_graphs(model, torch.float16 if precision == "float16" else torch.float32)
    for graph in graphs.values():
        fuse(graph)
        if precision == "float16":  # packages for devices
            fuse_norms(graph)
    if precision not in {"float32", "float16"}:
        ranges = _smoothed(model, graphs, samples, folder) if precision == "int8-static" else {}
        graphs = {name: quantize(graph, precision, ranges.get(name)) for name, graph in graphs.items()}
    if isinstance(model, DecoderLM | EncoderDecoder):
        graphs["candidates"] = candidates_graph()
    return {name: save_graph(graph, folder / f"{name}.onnx") for name, graph in graphs.items()}


def _smoothed(
    model: Transformer, graphs: dict[str, Graph], samples: Samples | None, scratch: Path
) -> dict[str, Ranges]:
    """Even out the channels of the graphs' activations, and return the ranges that they have then."""
    if samples is None or isinstance(model, VisionTransformer):
        raise PackageError("int8-static finds its scales by sample texts, and this model takes none; export it in int8")
    ranges = find_ranges(graphs, samples, cache_shape(model), scratch)
    return {name: smooth(graph, ranges[name]) for name, graph in graphs.items()}


def cache_shape(model: Transformer, precision: Precision = "float32") -> CacheShape | None:
    """Return the sizes of a model's KV cache, if it has one; its numbers are as precise as the weights."""
    if not isinstance(model, DecoderLM | EncoderDecoder):
        return None
    return CacheShape(
        num_layers=model.config.num_decoder_layers,
        num_kv_heads=model.config.kv_heads,
        head_dim=padded_width(model.config),
        dtype="float16" if precision == "float16" else "float32",
    )
