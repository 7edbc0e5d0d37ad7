"""The contract between model and engine: what each ONNX graph takes and returns.

Letters: B rows, T new tokens, S source length or cache capacity, K key/value heads, D head width, P positions asked
for; i counts the decoder's layers.

What reads a text: a classifier, sentence vectors, dense or sparse, a tagger, a filler
    in:  input_ids, segment_ids (B, T); last_positions (B,), of each row's last real token; total_length (), which is T;
         of a filler logit_positions (B, P), which tokens' words are wanted
    out: logits (B, num_labels), of a tagger (B, T, num_labels), of a filler (B, P, vocab_size); or embeddings
         (B, d_model), or as wide as the head's linear map makes them; where they are sparse (B, vocab_size), weights
         before their logarithm
Encoder of images
    in:  pixels (B, C, H, W), normalised
    out: logits (B, num_labels)
Encoder of a translator
    in:  input_ids (B, S); last_positions (B,); total_length ()
    out: cross_key_i, cross_value_i (B, K, S, D)
Decoder
    in:  input_ids, position_ids (B, T); last_positions (B,); total_length (), the longest row with its new tokens;
         logit_positions (B, P), which of the T tokens' logits are wanted; past_key_i, past_value_i (B, K, S, D)
    out: logits (B, P, vocab_size); present_key_i, present_value_i (B, K, S, D)
    and in a translator
    in:  source_last_positions (B,); source_total_length (), the longest source; the encoder's cross_key_i,
         cross_value_i; and of them the last tokens' last_key_i, last_value_i (B, 1, K·D)
    out: kept_key_i, kept_value_i (B, K, S, D), which are cross_key_i and cross_value_i unchanged
Candidates, over a decoder's logits
    in:  logits (B, vocab_size); count (1,)
    out: log_probabilities, ids (B, count), the likeliest tokens of each row, best first

One decoder graph serves prefill (a ragged batch padded on the right and without a past, or one row with a past) and
decode (one new token a row; a translator only decodes). With past and present, cross and kept bound to the same memory
the cache is updated in place and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from model.architectures import DecoderLM, EncoderDecoder, TextReader, Transformer, VisionTransformer
from model.architectures.heads import FillHead, Read
from model.export.attention import CachedAttention, CachedCrossAttention, Pair, RaggedAttention, positions_below
from model.export.graph import Graph
from model.export.operations import OPERATIONS
from model.export.prepare import prepared
from model.export.trace import Tracer, Value, as_tensor, as_value
from model.layers.block import Block, Stack
from model.package.inputs import cache_names


@dataclass(frozen=True)
class GraphFile:
    """One exported graph: its file, and the order of its inputs and outputs."""

    path: Path
    inputs: list[str]
    outputs: list[str]


@torch.no_grad()
def trace_graphs(transformer: Transformer, float_type: torch.dtype = torch.float32) -> dict[str, Graph]:
    """Return a model's graphs by name: encoder, decoder. Their weights are the model's, read when they are written."""
    transformer = prepared(transformer.eval())
    if isinstance(transformer, VisionTransformer):
        return {"encoder": _vision(transformer, Tracer(transformer, OPERATIONS, float_type))}
    if isinstance(transformer, TextReader):
        return {"encoder": _reader(transformer, Tracer(transformer, OPERATIONS, float_type))}
    decoder = _decoder(transformer, Tracer(transformer, OPERATIONS, float_type))
    if isinstance(transformer, DecoderLM):
        return {"decoder": decoder}
    return {"encoder": _source(transformer, Tracer(transformer, OPERATIONS, float_type)), "decoder": decoder}


def save_graph(graph: Graph, path: Path) -> GraphFile:
    """Write a graph, and say what goes in and comes out."""
    graph.save(path)
    return GraphFile(path, [given.name for given in graph.inputs], [output.name for output in graph.outputs])


def _reader(model: TextReader, tracer: Tracer) -> Graph:
    """Trace what reads a text, with its head."""
    ids, segments = (tracer.input(name, ("rows", "length")) for name in ("input_ids", "segment_ids"))
    attention = _ragged(tracer, ids)
    read: Any = model.read  # values stand for its tensors
    hidden = read(ids, segments, attention.last_positions, attention)
    if isinstance(model.head, FillHead):
        wanted = tracer.input("logit_positions", ("rows", "wanted"))
        answer = as_value(model.head.word_logits(as_tensor(_at(hidden, wanted)), model.embeddings.words))
    else:
        attention_mask = attention.query_positions[None] <= attention.last_positions[:, None]
        text = Read(hidden, as_tensor(ids), as_tensor(attention_mask), model.embeddings.words)
        answer = as_value(model.head(text))
    return _finished(tracer, {"embeddings" if model.config.head.kind in {"embed", "sparse"} else "logits": answer})


def _vision(model: VisionTransformer, tracer: Tracer) -> Graph:
    """Trace a whole vision transformer, all of whose rows are equally long."""
    vision, length = model.config.vision, model.config.max_positions
    assert vision is not None
    pixels = tracer.input("pixels", ("rows", vision.num_channels, vision.image_size, vision.image_size), torch.float32)
    last = torch.tensor(length - 1, dtype=torch.int32)
    last_positions = tracer.emit("Expand", [last, tracer.sizes(["rows"])], ("rows",), torch.int32)
    positions, total_length = (tracer.value(each) for each in (torch.arange(length), last + 1))
    attention = RaggedAttention(positions, positions, last_positions, total_length)
    return _finished(tracer, {"logits": model(pixels, attention)})


def _source(model: EncoderDecoder, tracer: Tracer) -> Graph:
    """Trace a translator's encoder, and the projection of its result to every decoder layer's keys and values."""
    ids = tracer.input("input_ids", ("rows", "length"))
    attention = _ragged(tracer, ids)
    source = model.encoder(model.embeddings(ids, attention.query_positions[None]), attention)
    projected: list[Value] = []
    for block in _blocks(model.decoder):
        assert block.cross_attention is not None
        layer = block.cross_attention
        projected += [as_value(layer.split(each)) for each in layer.keys_and_values(source)]
    return _finished(tracer, dict(zip(cache_names("cross", len(projected) // 2), projected, strict=True)))


def _decoder(model: DecoderLM | EncoderDecoder, tracer: Tracer) -> Graph:
    """Trace a decoder's step over its KV cache."""
    is_translator = isinstance(model, EncoderDecoder)
    new = 1 if is_translator else "length"  # for the operator of cross-attention takes no more
    layers, shape = len(model.decoder.blocks), _cache_shape(model.decoder)
    ids, position_ids = (tracer.input(name, ("rows", new)) for name in ("input_ids", "position_ids"))
    last_positions, total_length = _lengths(tracer)
    wanted = tracer.input("logit_positions", ("rows", "wanted"))
    past = _pairs(tracer, "past", layers, ("rows", shape[0], "capacity", shape[1]))
    keys = positions_below(total_length, "total_length")
    attention = CachedAttention(position_ids, keys, last_positions, total_length, past)
    cross = _cross(tracer, position_ids, layers, shape) if is_translator else None
    embeddings = model.target_embeddings if isinstance(model, EncoderDecoder) else model.embeddings
    hidden = model.decoder(embeddings(ids, position_ids), attention, cross)
    outputs = {"logits": as_value(model.project(as_tensor(_at(hidden, wanted))))}
    for name, pairs in (("present", attention.present), ("kept", [] if cross is None else cross.kept)):
        outputs |= dict(zip(cache_names(name, len(pairs)), [each for pair in pairs for each in pair], strict=True))
    return _finished(tracer, outputs)


def _cross(tracer: Tracer, position_ids: Value, layers: int, shape: tuple[int, int]) -> CachedCrossAttention:
    heads, width = shape
    last_positions, total_length = _lengths(tracer, "source_")
    source = _pairs(tracer, "cross", layers, ("rows", heads, "source_capacity", width))
    last = _pairs(tracer, "last", layers, ("rows", 1, heads * width))
    return CachedCrossAttention(position_ids, position_ids, last_positions, total_length, source, last)


def _ragged(tracer: Tracer, ids: Value) -> RaggedAttention:
    last_positions, total_length = _lengths(tracer)
    positions = positions_below(total_length, ids.shape[1])
    return RaggedAttention(positions, positions, last_positions, total_length)


def _lengths(tracer: Tracer, prefix: str = "") -> tuple[Value, Value]:
    last_positions = tracer.input(f"{prefix}last_positions", ("rows",), torch.int32)
    return last_positions, tracer.input(f"{prefix}total_length", (), torch.int32)


def _pairs(tracer: Tracer, prefix: str, layers: int, shape: Sequence[int | str]) -> list[Pair]:
    values = [tracer.input(name, shape, tracer.float_type) for name in cache_names(prefix, layers)]
    return list(zip(values[::2], values[1::2], strict=True))


def _blocks(stack: Stack) -> list[Block]:
    return [block for block in stack.blocks if isinstance(block, Block)]


def _cache_shape(stack: Stack) -> tuple[int, int]:
    """Return key/value heads and head width."""
    layer = _blocks(stack)[0].self_attention
    return layer.num_kv_heads, layer.head_dim


def _at(hidden: Value, positions: Value) -> Value:
    """Return the hidden states (B, T, d_model) at positions (B, P): (B, P, d_model)."""
    shape = (*positions.shape, hidden.shape[-1])
    return hidden.tracer.emit("GatherND", [hidden, positions[:, :, None]], shape, hidden.dtype, batch_dims=1)


def _finished(tracer: Tracer, outputs: dict[str, Value]) -> Graph:
    for name, value in outputs.items():
        tracer.output(name, value)
    tracer.graph.drop_unused()
    return tracer.graph
