"""The contract between model and engine: what each ONNX graph takes and returns.

Letters: B rows, T new tokens, S source length or cache capacity, K key/value heads, D head width, P positions asked
for; i counts the decoder's layers.

What reads a text: a classifier, sentence vectors, a tagger, a filler
    in:  input_ids, segment_ids (B, T); last_positions (B,), of each row's last real token; total_length (), which is T;
         of a filler logit_positions (B, P), which tokens' words are wanted
    out: logits (B, num_labels), of a tagger (B, T, num_labels), of a filler (B, P, vocab_size); or embeddings
         (B, d_model)
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

import contextlib
import io
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

from model.architectures import DecoderLM, EncoderDecoder, TextReader, Transformer, VisionTransformer
from model.architectures.heads import FillHead, Read
from model.export.prepare import padded_width, prepared
from model.layers.block import Block
from model.layers.operator import CachedAttention, CachedCrossAttention, Pair, RaggedAttention, positions_below
from model.package.inputs import cache_names

OPSET = 21


class ReaderGraph(nn.Module):
    """What reads a text, with its head."""

    def __init__(self, model: TextReader) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        segment_ids: Tensor,
        last_positions: Tensor,
        total_length: Tensor,
        logit_positions: Tensor | None = None,
    ) -> Tensor:
        """Return what the head makes of the texts; a filler's words at the positions asked for."""
        model = self.model
        attention = _ragged(input_ids, last_positions, total_length)
        hidden = model.read(input_ids, segment_ids, last_positions, attention)
        if isinstance(model.head, FillHead):
            assert logit_positions is not None
            return model.head.word_logits(_at(hidden, logit_positions), model.embeddings.words)
        attention_mask = torch.arange(input_ids.shape[1])[None] <= last_positions[:, None]
        return model.head(Read(hidden, input_ids, attention_mask, model.embeddings.words))


class VisionGraph(nn.Module):
    """A whole vision transformer."""

    def __init__(self, model: VisionTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the labels' logits; all rows are equally long."""
        length = self.model.config.max_positions
        last, positions = torch.full((pixels.shape[0],), length - 1, dtype=torch.int32), torch.arange(length)
        total_length = torch.tensor(length, dtype=torch.int32)
        return self.model(pixels, RaggedAttention(positions, positions, last, total_length))


class SourceGraph(nn.Module):
    """A translator's encoder, and the projection of its result to every decoder layer's keys and values."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, last_positions: Tensor, total_length: Tensor) -> list[Tensor]:
        """Return the key and the value of layer 0, then of layer 1, and so on."""
        x = self.model.embeddings(input_ids)
        source = self.model.encoder(x, _ragged(x, last_positions, total_length))
        outputs: list[Tensor] = []
        for block in self.model.decoder.blocks:
            assert isinstance(block, Block) and block.cross_attention is not None
            layer = block.cross_attention
            outputs += [layer.split(projected) for projected in layer.keys_and_values(source)]
        return outputs


class DecoderGraph(nn.Module):
    """A decoder's step over its KV cache."""

    def __init__(self, model: DecoderLM | EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        last_positions: Tensor,
        total_length: Tensor,
        logit_positions: Tensor,
        past: list[Tensor],
        source: Source | None = None,
    ) -> list[Tensor]:
        """Return the logits, the present key and value of every layer, and in a translator the kept ones."""
        model = self.model
        has_bias = model.decoder.relative is not None
        keys = positions_below(total_length, capacity=past[0].shape[2]) if has_bias else position_ids
        attention = CachedAttention(position_ids, keys, last_positions, total_length, _pairs(past))
        cross = None if source is None else _cross(position_ids, source)
        embeddings = model.target_embeddings if isinstance(model, EncoderDecoder) else model.embeddings
        hidden = model.decoder(embeddings(input_ids, position_ids), attention, cross)
        logits = model.project(_at(hidden, logit_positions))
        kept = [] if cross is None else cross.kept
        return [logits, *(tensor for pair in [*attention.present, *kept] for tensor in pair)]


# A translator's: last positions, the longest source, keys and values, and those of the last tokens.
Source = tuple[Tensor, Tensor, list[Tensor], list[Tensor]]


def _ragged(x: Tensor, last_positions: Tensor, total_length: Tensor) -> RaggedAttention:
    positions = torch.arange(x.shape[1])
    return RaggedAttention(positions, positions, last_positions, total_length)


def _cross(position_ids: Tensor, source: Source) -> CachedCrossAttention:
    last_positions, total_length, keys_and_values, last = source
    return CachedCrossAttention(
        position_ids, position_ids, last_positions, total_length, _pairs(keys_and_values), _pairs(last)
    )


def _pairs(tensors: list[Tensor]) -> list[Pair]:
    return list(zip(tensors[::2], tensors[1::2], strict=True))


def _at(hidden: Tensor, positions: Tensor) -> Tensor:
    """Return the hidden states (B, T, d_model) at positions (B, P): (B, P, d_model)."""
    return hidden.gather(1, positions[:, :, None].expand(-1, -1, hidden.shape[-1]))


@dataclass(frozen=True)
class GraphFile:
    """One exported graph: its file, and the order of its inputs and outputs."""

    path: Path
    inputs: list[str]
    outputs: list[str]


def export_graphs(model: Transformer, folder: Path) -> dict[str, GraphFile]:
    """Write a model's graphs in float32 into a folder; returns them by name: encoder, decoder."""
    model = prepared(model.eval())
    if isinstance(model, VisionTransformer):
        return {"encoder": _export_vision(model, folder)}
    if isinstance(model, TextReader):
        return {"encoder": _export_reader(model, folder)}
    if isinstance(model, EncoderDecoder):
        return {"encoder": _export_source(model, folder), "decoder": _export_decoder(model, folder)}
    return {"decoder": _export_decoder(model, folder)}


# The example sizes are primes, so that the exporter cannot mistake one dimension for another.
ROWS, LENGTH, CAPACITY, SOURCE, WANTED = 2, 3, 11, 7, 5


def _export_vision(model: VisionTransformer, folder: Path) -> GraphFile:
    vision = model.config.vision
    assert vision is not None
    pixels = torch.zeros(ROWS, vision.num_channels, vision.image_size, vision.image_size)
    return _export(VisionGraph(model), (pixels,), ({0: Dim.DYNAMIC},), ["pixels"], ["logits"], folder / "encoder.onnx")


def _export_reader(model: TextReader, folder: Path) -> GraphFile:
    ids = torch.ones(ROWS, LENGTH, dtype=torch.int64)
    shape = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    inputs: tuple[object, ...] = (ids, torch.zeros_like(ids), *_lengths(LENGTH))
    names = ["input_ids", "segment_ids", "last_positions", "total_length"]
    shapes: tuple[object, ...] = (shape, shape, {0: Dim.DYNAMIC}, {})
    if isinstance(model.head, FillHead):
        inputs, shapes = (*inputs, torch.zeros(ROWS, WANTED, dtype=torch.int64)), (*shapes, shape)
        names.append("logit_positions")
    outputs = ["embeddings" if model.config.head.kind == "embed" else "logits"]
    return _export(ReaderGraph(model), inputs, shapes, names, outputs, folder / "encoder.onnx")


def _lengths(longest: int) -> tuple[Tensor, Tensor]:
    return torch.full((ROWS,), longest - 1, dtype=torch.int32), torch.tensor(longest, dtype=torch.int32)


def _export_source(model: EncoderDecoder, folder: Path) -> GraphFile:
    ids = torch.ones(ROWS, SOURCE, dtype=torch.int64)
    shape = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    outputs = cache_names("cross", model.config.num_decoder_layers)
    names = ["input_ids", "last_positions", "total_length"]
    inputs = (ids, *_lengths(SOURCE))
    shapes: tuple[object, ...] = (shape, {0: Dim.DYNAMIC}, {})
    return _export(SourceGraph(model), inputs, shapes, names, outputs, folder / "encoder.onnx")


def _export_decoder(model: DecoderLM | EncoderDecoder, folder: Path) -> GraphFile:
    config = model.config
    rows, both = {0: Dim.DYNAMIC}, {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    cache_shape = {0: Dim.DYNAMIC, 2: Dim.DYNAMIC}
    layers = config.num_decoder_layers
    ids = torch.ones(ROWS, LENGTH, dtype=torch.int64)
    dtype = next(model.parameters()).dtype
    heads, width = config.kv_heads, padded_width(config)
    past = [torch.zeros(ROWS, heads, CAPACITY, width, dtype=dtype) for _ in range(2 * layers)]
    inputs: list[object] = [
        ids,
        torch.arange(LENGTH).expand(ROWS, LENGTH).contiguous(),
        *_lengths(LENGTH),
        torch.zeros(ROWS, 1, dtype=torch.int64),
        past,
    ]
    shapes: list[object] = [both, both, rows, {}, both, [cache_shape] * len(past)]
    names = ["input_ids", "position_ids", "last_positions", "total_length", "logit_positions"]
    names += cache_names("past", layers)
    outputs = ["logits", *cache_names("present", layers)]
    if isinstance(model, EncoderDecoder):
        # One new token a row, for the operator of cross-attention takes no more.
        inputs[0], inputs[1] = ids[:, :1], torch.full((ROWS, 1), LENGTH - 1)
        shapes[0] = shapes[1] = rows
        cross = [torch.zeros(ROWS, heads, SOURCE, width, dtype=dtype) for _ in range(2 * layers)]
        last = [torch.zeros(ROWS, 1, heads * width, dtype=dtype) for _ in range(2 * layers)]
        inputs.append((*_lengths(SOURCE), cross, last))
        shapes.append((rows, {}, [cache_shape] * len(cross), [rows] * len(last)))
        names += ["source_last_positions", "source_total_length"]
        names += [*cache_names("cross", layers), *cache_names("last", layers)]
        outputs += cache_names("kept", layers)
    return _export(DecoderGraph(model), tuple(inputs), tuple(shapes), names, outputs, folder / "decoder.onnx")


def _export(
    graph: nn.Module,
    inputs: tuple[object, ...],
    shapes: tuple[object, ...],
    names: list[str],
    outputs: list[str],
    path: Path,
) -> GraphFile:
    # The exporter reports its progress on stdout and warns of its own internals.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            graph,
            inputs,
            str(path),
            dynamo=True,
            dynamic_shapes=shapes,
            input_names=names,
            output_names=outputs,
            opset_version=OPSET,
            external_data=False,
            verbose=False,
        )
    return GraphFile(path, names, outputs)
