"""The contract between model and engine: what each ONNX graph takes and returns.

Letters: B rows, T new tokens, S source length or cache capacity, K key/value heads, D head width, P positions asked
for; i counts the decoder's layers.

Encoder of a classifier
    in:  input_ids, attention_mask, segment_ids (B, T)
    out: logits (B, num_labels)
Encoder of a translator
    in:  input_ids, attention_mask (B, S)
    out: cross_key_i, cross_value_i (B, K, S, D)
Decoder
    in:  input_ids, position_ids (B, T); last_positions (B,); total_length (); logit_positions (B, P), which of the T
         tokens' logits are wanted; past_key_i, past_value_i (B, K, S, D); in a translator also source_lengths (B,)
         and the encoder's cross_key_i, cross_value_i
    out: logits (B, P, vocab_size); present_key_i, present_value_i (B, K, S, D)

One decoder graph serves prefill (a ragged batch padded on the right and without a past, or one row with a past) and
decode (one new token a row). With past and present bound to the same memory the cache is updated in place.
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

from model.architectures import DecoderLM, EncoderClassifier, EncoderDecoder, Transformer
from model.layers.block import Block
from model.layers.cache import CrossAttentionCache, SelfAttentionCache
from model.package.inputs import cache_names

OPSET = 21


class ClassifierGraph(nn.Module):
    """The whole classifier."""

    def __init__(self, model: EncoderClassifier) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, segment_ids: Tensor) -> Tensor:
        """Return the labels' logits."""
        logits: Tensor = self.model(input_ids, attention_mask, segment_ids)
        return logits


class SourceGraph(nn.Module):
    """A translator's encoder, and the projection of its result to every decoder layer's keys and values."""

    def __init__(self, model: EncoderDecoder) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> list[Tensor]:
        """Return the key and the value of layer 0, then of layer 1, and so on."""
        source = self.model.encode(input_ids, attention_mask)
        outputs: list[Tensor] = []
        for block in self.model.decoder.blocks:
            assert isinstance(block, Block) and block.cross_attention is not None
            outputs += block.cross_attention.project_source(source)
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
        source_lengths: Tensor | None = None,
        cross: list[Tensor] | None = None,
    ) -> list[Tensor]:
        """Return the logits, then the present key and value of every layer."""
        heads = self.model.config.num_heads
        caches = [
            SelfAttentionCache(key, value, last_positions, total_length, heads)
            for key, value in zip(past[::2], past[1::2], strict=True)
        ]
        cross_caches = None if cross is None else _cross_caches(cross, source_lengths, heads)
        hidden = self.model.decoder.forward_cached(self.model.embeddings(input_ids, position_ids), caches, cross_caches)
        wanted = hidden.gather(1, logit_positions[:, :, None].expand(-1, -1, hidden.shape[-1]))  # (B, P, d_model)
        presents = [tensor for cache in caches for tensor in (cache.key, cache.value)]
        return [self.model.project(wanted), *presents]


def _cross_caches(cross: list[Tensor], source_lengths: Tensor | None, heads: int) -> list[CrossAttentionCache]:
    assert source_lengths is not None, "cross-attention needs the sources' lengths"
    is_real = torch.arange(cross[0].shape[2], device=source_lengths.device) < source_lengths[:, None]
    # −10⁴ vanishes in the softmax, and float16 can hold it.
    bias = torch.where(is_real, 0.0, -10000.0)[:, None, None, :]
    return [CrossAttentionCache(key, value, bias, heads) for key, value in zip(cross[::2], cross[1::2], strict=True)]


@dataclass(frozen=True)
class GraphFile:
    """One exported graph: its file, and the order of its inputs and outputs."""

    path: Path
    inputs: list[str]
    outputs: list[str]


def export_graphs(model: Transformer, folder: Path) -> dict[str, GraphFile]:
    """Write a model's graphs in float32 into a folder; returns them by name: encoder, decoder."""
    model.eval()
    if isinstance(model, EncoderClassifier):
        return {"encoder": _export_classifier(model, folder)}
    if isinstance(model, EncoderDecoder):
        return {"encoder": _export_source(model, folder), "decoder": _export_decoder(model, folder)}
    return {"decoder": _export_decoder(model, folder)}


# The example sizes are odd primes, so that the exporter cannot mistake one dimension for another.
ROWS, LENGTH, CAPACITY, SOURCE = 2, 3, 11, 7


def _export_classifier(model: EncoderClassifier, folder: Path) -> GraphFile:
    ids = torch.ones(ROWS, LENGTH, dtype=torch.int64)
    shape = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    names = ["input_ids", "attention_mask", "segment_ids"]
    inputs = (ids, torch.ones_like(ids), torch.zeros_like(ids))
    return _export(ClassifierGraph(model), inputs, (shape,) * 3, names, ["logits"], folder / "encoder.onnx")


def _export_source(model: EncoderDecoder, folder: Path) -> GraphFile:
    ids = torch.ones(ROWS, SOURCE, dtype=torch.int64)
    shape = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    outputs = cache_names("cross", model.config.num_decoder_layers)
    names = ["input_ids", "attention_mask"]
    return _export(
        SourceGraph(model), (ids, torch.ones_like(ids)), (shape, shape), names, outputs, folder / "encoder.onnx"
    )


def _export_decoder(model: DecoderLM | EncoderDecoder, folder: Path) -> GraphFile:
    config = model.config
    rows, both = {0: Dim.DYNAMIC}, {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    cache_shape = {0: Dim.DYNAMIC, 2: Dim.DYNAMIC}
    layers = config.num_decoder_layers
    ids = torch.ones(ROWS, LENGTH, dtype=torch.int64)
    past = [torch.zeros(ROWS, config.kv_heads, CAPACITY, config.head_dim) for _ in range(2 * layers)]
    inputs: list[object] = [
        ids,
        torch.arange(LENGTH).expand(ROWS, LENGTH).contiguous(),
        torch.full((ROWS,), LENGTH - 1, dtype=torch.int32),
        torch.tensor(LENGTH, dtype=torch.int32),
        torch.zeros(ROWS, 1, dtype=torch.int64),
        past,
    ]
    shapes: list[object] = [both, both, rows, {}, both, [cache_shape] * len(past)]
    names = ["input_ids", "position_ids", "last_positions", "total_length", "logit_positions"]
    names += cache_names("past", layers)
    if isinstance(model, EncoderDecoder):
        cross = [torch.zeros(ROWS, config.kv_heads, SOURCE, config.head_dim) for _ in range(2 * layers)]
        inputs += [torch.full((ROWS,), SOURCE, dtype=torch.int64), cross]
        shapes += [rows, [cache_shape] * len(cross)]
        names += ["source_lengths", *cache_names("cross", layers)]
    outputs = ["logits", *cache_names("present", layers)]
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
