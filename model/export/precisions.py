"""A model's graphs as files, as precise as asked."""

from __future__ import annotations

from pathlib import Path

import torch

from model.architectures import DecoderLM, EncoderDecoder, Transformer
from model.export.candidates import candidates_graph
from model.export.fuse import fuse
from model.export.graphs import GraphFile, save_graph, trace_graphs
from model.export.prepare import padded_width
from model.export.quantize import BLOCKS, quantize
from model.package import CacheShape
from model.package.manifest import Precision


def write_graphs(model: Transformer, folder: Path, precision: Precision = "float32") -> dict[str, GraphFile]:
    """Write a model's graphs into a folder; returns them by name: encoder, decoder, candidates."""
    graphs = trace_graphs(model, torch.float16 if precision == "float16" else torch.float32)
    for name, graph in graphs.items():
        fuse(graph)
        if precision not in {"float32", "float16"}:
            graphs[name] = quantize(graph, BLOCKS.get(precision))
    if isinstance(model, DecoderLM | EncoderDecoder):
        graphs["candidates"] = candidates_graph()
    return {name: save_graph(graph, folder / f"{name}.onnx") for name, graph in graphs.items()}


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
