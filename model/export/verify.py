"""Verification: ONNX Runtime's answers against torch's cache-free ones, on random batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.architectures import DecoderLM, EncoderDecoder, TextReader, Transformer, VisionTransformer
from model.architectures.heads import FillHead, TokenLabelHead
from model.export.naive import NaiveDecoder, NaiveGraph, text_inputs
from model.export.prepare import padded_width
from model.package import CacheShape, Verification
from model.package.inputs import encoder_inputs, pad_rows

TOLERANCE = 1e-4  # float32 graphs must stay below it


@dataclass
class _Errors:
    """The largest relative error seen."""

    largest: float = 0.0

    def compare(self, actual: NDArray[np.float32], expected: Tensor) -> None:
        truth = expected.numpy()
        self.largest = max(self.largest, float(np.abs(actual - truth).max() / np.abs(truth).max()))


def verify(model: Transformer, graphs: Mapping[str, NaiveGraph], *, batches: int = 8, seed: int = 0) -> Verification:
    """Compare a model with its graphs: ragged batches, prefill, decode steps, a chunk behind a past.

    The error is the largest absolute difference over the largest absolute value of torch's answer.
    """
    model.eval()
    rng = np.random.default_rng(seed)
    errors = _Errors()
    with torch.no_grad():
        for _ in range(batches):
            if isinstance(model, VisionTransformer):
                _verify_vision(model, graphs["encoder"], rng, errors)
            elif isinstance(model, TextReader):
                _verify_encoder(model, graphs["encoder"], rng, errors)
            elif isinstance(model, DecoderLM):
                _verify_decoder(model, graphs["decoder"], rng, errors)
                _verify_chunks(model, graphs["decoder"], rng, errors)
            else:
                _verify_translator(model, graphs, rng, errors)
    return Verification(max_relative_error=errors.largest, batches=batches)


def _random_rows(model: Transformer, rng: np.random.Generator, rows: int, longest: int) -> list[list[int]]:
    longest = min(longest, model.config.max_positions - 4)
    return [rng.integers(0, model.config.vocab_size, rng.integers(1, longest + 1)).tolist() for _ in range(rows)]


def _verify_vision(model: VisionTransformer, graph: NaiveGraph, rng: np.random.Generator, errors: _Errors) -> None:
    vision = model.config.vision
    assert vision is not None
    shape = int(rng.integers(1, 6)), vision.num_channels, vision.image_size, vision.image_size
    pixels = rng.standard_normal(shape).astype(np.float32)
    errors.compare(graph.run({"pixels": pixels})["logits"], model(torch.from_numpy(pixels)))


def _verify_encoder(model: TextReader, graph: NaiveGraph, rng: np.random.Generator, errors: _Errors) -> None:
    rows = _random_rows(model, rng, rows=int(rng.integers(1, 6)), longest=40)
    inputs = text_inputs(
        rows, [rng.integers(0, max(1, model.config.embeddings.segments), len(row)).tolist() for row in rows]
    )
    ids, segments = (torch.from_numpy(inputs[name]) for name in ("input_ids", "segment_ids"))
    is_real = torch.arange(ids.shape[1]) <= torch.from_numpy(inputs["last_positions"])[:, None]
    expected = model(ids, is_real, segments)
    if isinstance(model.head, FillHead):
        inputs["logit_positions"] = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    (output,) = graph.run(inputs).values()
    if isinstance(model.head, FillHead | TokenLabelHead):  # what is said of padding means nothing
        output, expected = output[is_real.numpy()], expected[is_real]
    errors.compare(output, expected)


def _decoder(model: DecoderLM | EncoderDecoder, graph: NaiveGraph, rows: int, capacity: int) -> NaiveDecoder:
    return NaiveDecoder(graph, cache_shape(model), rows, capacity)


def cache_shape(model: DecoderLM | EncoderDecoder) -> CacheShape:
    """Return the sizes of a model's KV cache; its numbers are as precise as the weights."""
    config = model.config
    return CacheShape(
        num_layers=config.num_decoder_layers,
        num_kv_heads=config.kv_heads,
        head_dim=padded_width(config),
        dtype="float16" if next(model.parameters()).dtype == torch.float16 else "float32",
    )


def _verify_decoder(model: DecoderLM, graph: NaiveGraph, rng: np.random.Generator, errors: _Errors) -> None:
    """Ragged prefill, then three decode steps."""
    rows = _random_rows(model, rng, rows=int(rng.integers(1, 6)), longest=20)
    ids, lengths = pad_rows(rows, 0)
    decoder = _decoder(model, graph, len(rows), ids.shape[1] + 3)
    logits = decoder.step(ids, lengths, 0)
    for row, tokens in enumerate(rows):
        errors.compare(logits[row, : len(tokens)], model(torch.tensor([tokens]))[0])
    for _ in range(3):
        new = rng.integers(0, model.config.vocab_size, (len(rows), 1))
        logits = decoder.step(new, np.ones(len(rows), np.int64), np.array([len(tokens) for tokens in rows]))
        for row, tokens in enumerate(rows):
            tokens.append(int(new[row, 0]))
            errors.compare(logits[row, -1:], model(torch.tensor([tokens]))[0, -1:])


def _verify_chunks(model: DecoderLM, graph: NaiveGraph, rng: np.random.Generator, errors: _Errors) -> None:
    """One prompt in two chunks: the second has more than one new token and a past."""
    first, second = (_random_rows(model, rng, rows=1, longest=9)[0] for _ in range(2))
    decoder = _decoder(model, graph, 1, len(first) + len(second))
    expected = model(torch.tensor([first + second]))[0]
    errors.compare(decoder.step(np.array([first]), np.array([len(first)]), 0)[0], expected[: len(first)])
    errors.compare(decoder.step(np.array([second]), np.array([len(second)]), len(first))[0], expected[len(first) :])


def _verify_translator(
    model: EncoderDecoder, graphs: Mapping[str, NaiveGraph], rng: np.random.Generator, errors: _Errors
) -> None:
    """Decode a ragged batch of sources token by token, and compare with teacher forcing."""
    sources = _random_rows(model, rng, rows=int(rng.integers(1, 6)), longest=20)
    ids, lengths = pad_rows(sources, 0)
    mask = np.arange(ids.shape[1]) < lengths[:, None]
    cross = graphs["encoder"].run(encoder_inputs(ids, lengths))
    targets = rng.integers(0, model.config.vocab_size, (len(sources), 5))
    expected = model(torch.from_numpy(ids), torch.from_numpy(mask), torch.from_numpy(targets))
    decoder = _decoder(model, graphs["decoder"], len(sources), targets.shape[1])
    decoder.set_source(cross, lengths)
    ones = np.ones(len(sources), np.int64)
    for position in range(targets.shape[1]):
        logits = decoder.step(targets[:, position : position + 1], ones, position)
        errors.compare(logits[:, 0], expected[:, position])
