"""Verification: ONNX Runtime's answers against torch's cache-free ones, on texts or on random ids."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from model.architectures import DecoderLM, EncoderDecoder, TextReader, Transformer, VisionTransformer
from model.architectures.heads import FillHead, TokenLabelHead
from model.export.limits import LIMITS, TOLERANCE
from model.export.naive import NaiveDecoder, NaiveGraph, text_inputs
from model.export.precisions import cache_shape
from model.export.samples import COMPARED, FEWEST_TOKENS, knows_words, token_rows
from model.package import PackageError
from model.package.inputs import encoder_inputs, pad_rows

__all__ = ["FEWEST_POSITIONS", "LIMITS", "TOLERANCE", "Report", "Rows", "verify"]

FEWEST_POSITIONS = 5  # of a model: a row of one token, and what is generated behind it
DECODE_STEPS = 3
BEHIND_WINDOW = 8  # tokens of a row that is longer than the window of attention
MAX_ROW_TOKENS = 1100  # that is compared so; longer ones take minutes
CHUNK = 64
FEW_PARAMETERS = 1_000_000_000  # that all batches together may go through


@dataclass(frozen=True)
class Report:
    """How far a model's graphs are from torch."""

    max_relative_error: float  # the largest difference over the largest answer of its batch
    distance: float  # root mean square of the differences over that of the answers, each without its mean
    batches: int


@dataclass
class _Errors:
    """What has been seen so far."""

    largest: float = 0.0
    differences: float = 0.0  # squared and summed
    answers: float = 0.0

    def compare(self, actual: NDArray[np.generic], expected: Tensor, largest: float | None = None) -> None:
        """Compare answers; raises `PackageError` where one is not a number.

        `largest` is the size of the batch's largest answer, where these are a part of them.
        """
        found, truth = actual.astype(np.float64), expected.double().numpy()
        if not np.isfinite(truth).all():
            raise PackageError("the model answers with NaN or infinity; its weights are broken")
        if not np.isfinite(found).all():
            raise PackageError(
                "the graph answers with NaN or infinity, and the model does not: its numbers are too large for this "
                "precision; export it in another"
            )
        self.largest = max(self.largest, float(np.abs(found - truth).max() / (largest or np.abs(truth).max())))
        if truth.shape[-1] > 1:  # a number added to all logits changes no answer
            found, truth = (values - values.mean(-1, keepdims=True) for values in (found, truth))
        self.differences += float(np.square(found - truth).sum())
        self.answers += float(np.square(truth).sum())


@dataclass(frozen=True)
class Rows:
    """Where sample ids come from: `COMPARED` encoded, or any ids where a tokenizer knows none of their words."""

    vocab_size: int
    longest: int  # a row may be
    texts: list[list[int]] = field(default_factory=list)

    @classmethod
    def of(cls, model: Transformer, tokenizer: Tokenizer | None) -> Rows:
        """Return the rows that fit a model."""
        vocab_size, longest = model.config.vocab_size, model.config.max_positions - FEWEST_POSITIONS + 1
        if tokenizer is None or not knows_words(tokenizer, COMPARED, fewest=FEWEST_TOKENS):
            return cls(vocab_size, longest)
        return cls(vocab_size, longest, token_rows(tokenizer, COMPARED, vocab_size))

    def draw(self, rng: np.random.Generator, most: int, longest: int) -> list[list[int]]:
        """Return 1 to `most` rows of 1 to `longest` ids."""
        count, longest = int(rng.integers(1, most + 1)), min(longest, self.longest)
        if self.texts:
            return [self.texts[index][:longest] for index in rng.integers(0, len(self.texts), count)]
        return [self.ids(rng, int(rng.integers(1, longest + 1))) for _ in range(count)]

    def ids(self, rng: np.random.Generator, count: int) -> list[int]:
        """Return some ids."""
        among: Sequence[int] = [token for ids in self.texts for token in ids] or range(self.vocab_size)
        return [int(among[place]) for place in rng.integers(0, len(among), count)]


def verify(
    model: Transformer,
    graphs: Mapping[str, NaiveGraph],
    *,
    tokenizer: Tokenizer | None = None,
    batches: int | None = None,
) -> Report:
    """Compare a model with its graphs: ragged batches, prefill, decode steps, a chunk behind a past, a window's end.

    The number of batches is 8 unless given, and less of large models, of which torch takes seconds a batch.

    Raises `PackageError` where either answers with NaN or infinity.
    """
    model.eval()
    if batches is None:
        batches = max(1, min(8, FEW_PARAMETERS // sum(parameter.numel() for parameter in model.parameters())))
    rng, errors, rows = np.random.default_rng(0), _Errors(), Rows.of(model, tokenizer)
    with torch.no_grad():
        for _ in range(batches):
            if isinstance(model, VisionTransformer):
                _verify_vision(model, graphs["encoder"], rng, errors)
            elif isinstance(model, TextReader):
                _verify_reader(model, graphs["encoder"], rows.draw(rng, most=5, longest=40), rng, errors)
            elif isinstance(model, DecoderLM):
                _verify_decoder(model, graphs["decoder"], rows, rng, errors)
                _verify_chunks(model, graphs["decoder"], rows, rng, errors)
            else:
                sources = rows.draw(rng, most=5, longest=20)
                _verify_translator(model, graphs, sources, np.array([rows.ids(rng, 5) for _ in sources]), errors)
        if (window := model.config.attention.window) and window + BEHIND_WINDOW <= min(rows.longest, MAX_ROW_TOKENS):
            row = rows.ids(rng, window + BEHIND_WINDOW)
            if isinstance(model, EncoderDecoder):
                _verify_translator(model, graphs, [row], np.array([rows.ids(rng, len(row))]), errors)
            elif isinstance(model, TextReader):
                _verify_reader(model, graphs["encoder"], [row], rng, errors)
            elif isinstance(model, DecoderLM):
                _verify_long(model, graphs["decoder"], row, errors)
    return Report(errors.largest, math.sqrt(errors.differences / max(errors.answers, 1e-30)), batches)


def _verify_vision(model: VisionTransformer, graph: NaiveGraph, rng: np.random.Generator, errors: _Errors) -> None:
    vision = model.config.vision
    assert vision is not None
    shape = int(rng.integers(1, 6)), vision.num_channels, vision.image_size, vision.image_size
    pixels = rng.standard_normal(shape).astype(np.float32)
    errors.compare(graph.run({"pixels": pixels})["logits"], model(torch.from_numpy(pixels)))


def _verify_reader(
    model: TextReader, graph: NaiveGraph, texts: list[list[int]], rng: np.random.Generator, errors: _Errors
) -> None:
    segments = max(1, model.config.embeddings.segments)
    inputs = text_inputs(texts, [rng.integers(0, segments, len(row)).tolist() for row in texts])
    ids, segment_ids = (torch.from_numpy(inputs[name]) for name in ("input_ids", "segment_ids"))
    is_real = torch.arange(ids.shape[1]) <= torch.from_numpy(inputs["last_positions"])[:, None]
    expected = model(ids, is_real, segment_ids)
    if isinstance(model.head, FillHead):
        inputs["logit_positions"] = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    (output,) = graph.run(inputs).values()
    if model.config.head.kind == "answer":  # of which tokens are compared with one another, and not their two logits
        largest = float(expected[is_real].abs().max())
        for row, length in enumerate(is_real.sum(-1).tolist()):
            errors.compare(output[row, :length].T, expected[row, :length].T, largest)
        return
    if isinstance(model.head, FillHead | TokenLabelHead):  # what is said of padding means nothing
        output, expected = output[is_real.numpy()], expected[is_real]
    errors.compare(output, expected)


def _decoder(model: DecoderLM | EncoderDecoder, graph: NaiveGraph, rows: int, capacity: int) -> NaiveDecoder:
    shape = cache_shape(model)
    assert shape is not None
    return NaiveDecoder(graph, shape, rows, capacity)


def _verify_decoder(model: DecoderLM, graph: NaiveGraph, rows: Rows, rng: np.random.Generator, errors: _Errors) -> None:
    """Ragged prefill, then some decode steps."""
    texts = rows.draw(rng, most=5, longest=20)
    further = np.array([rows.ids(rng, DECODE_STEPS) for _ in texts])  # (B, steps)
    expected = [model(torch.tensor([[*text, *more]]))[0] for text, more in zip(texts, further.tolist(), strict=True)]
    ids, lengths = pad_rows(texts, 0)
    decoder = _decoder(model, graph, len(texts), ids.shape[1] + DECODE_STEPS)
    logits = decoder.step(ids, lengths, 0)
    for row, length in enumerate(lengths):
        errors.compare(logits[row, :length], expected[row][:length])
    for step in range(DECODE_STEPS):
        logits = decoder.step(further[:, step, None], np.ones_like(lengths), lengths + step)
        for row, length in enumerate(lengths):
            errors.compare(logits[row], expected[row][length + step, None])


def _verify_chunks(model: DecoderLM, graph: NaiveGraph, rows: Rows, rng: np.random.Generator, errors: _Errors) -> None:
    """One prompt in two chunks: the second has more than one new token and a past."""
    first, second = (rows.draw(rng, most=1, longest=min(9, rows.longest // 2 + 1))[0] for _ in range(2))
    decoder = _decoder(model, graph, 1, len(first) + len(second))
    expected = model(torch.tensor([first + second]))[0]
    errors.compare(decoder.step(np.array([first]), np.array([len(first)]), 0)[0], expected[: len(first)])
    errors.compare(decoder.step(np.array([second]), np.array([len(second)]), len(first))[0], expected[len(first) :])


def _verify_long(model: DecoderLM, graph: NaiveGraph, row: list[int], errors: _Errors) -> None:
    """One long text in chunks, so that no output holds the logits of all of it."""
    decoder = _decoder(model, graph, 1, len(row))
    expected = model(torch.tensor([row]))[0]
    for start in range(0, len(row), CHUNK):
        chunk = row[start : start + CHUNK]
        logits = decoder.step(np.array([chunk]), np.array([len(chunk)]), start)[0]
        errors.compare(logits, expected[start : start + len(chunk)])


def _verify_translator(
    model: EncoderDecoder,
    graphs: Mapping[str, NaiveGraph],
    sources: list[list[int]],
    targets: NDArray[np.int64],
    errors: _Errors,
) -> None:
    """Decode targets (B, T) of a ragged batch of sources token by token, and compare with teacher forcing."""
    ids, lengths = pad_rows(sources, 0)
    mask = np.arange(ids.shape[1]) < lengths[:, None]
    cross = graphs["encoder"].run(encoder_inputs(ids, lengths))
    expected = model(torch.from_numpy(ids), torch.from_numpy(mask), torch.from_numpy(targets))
    decoder = _decoder(model, graphs["decoder"], len(sources), targets.shape[1])
    decoder.set_source(cross, lengths)
    ones = np.ones(len(sources), np.int64)
    for position in range(targets.shape[1]):
        logits = decoder.step(targets[:, position : position + 1], ones, position)
        errors.compare(logits[:, 0], expected[:, position])
