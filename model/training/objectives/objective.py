"""What the training loop asks of an objective, and what objectives share."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn

Array = NDArray[np.int64]
Batch = dict[str, Tensor]
MOST_EXPONENT = 709.0  # e to more is no number of 64 bits
IGNORED = -100  # the target that cross_entropy leaves out by default


class Objective(Protocol):
    """What a model is trained to do. All objectives offer the same methods, so one loop trains them all."""

    metric: str  # the one of `summarise` that decides which weights are best
    higher_is_better: bool
    has_fixed_shapes: bool  # of training batches: each shape is then compiled for itself

    def encode(self, rows: Sequence[Any]) -> None:
        """Turn rows of data into the examples to train or evaluate on."""

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Return one epoch as lists of example indices; without `rng` in a fixed order."""

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return the tensors of one batch, padded on the right; the same for the same indices in the same epoch."""

    def weight(self, batch: Batch) -> int:
        """Return over how many things the mean loss of a batch is taken."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean loss of a batch."""

    def score(self, model: nn.Module, batch: Batch) -> Any:
        """Return what `summarise` needs of one batch of validation data."""

    def summarise(self, scores: Sequence[Any]) -> dict[str, float]:
        """Make the validation figures, by name, of the scores of all batches."""


@dataclass(frozen=True)
class Ragged:
    """Rows of numbers of different lengths, one behind the other, to be stacked without a loop over rows."""

    flat: Array
    starts: Array  # of each row, and where the last one ends

    @classmethod
    def of(cls, rows: Iterable[Sequence[int] | Array]) -> Self:
        """Lay rows one behind the other."""
        kept = [np.asarray(row, np.int64) for row in rows]
        starts = np.cumsum([0, *map(len, kept)])
        return cls(np.concatenate(kept) if kept else np.zeros(0, np.int64), starts)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> Array:
        return self.flat[self.starts[index] : self.starts[index + 1]]

    @property
    def lengths(self) -> Array:
        """How long each row is, (N,)."""
        return np.diff(self.starts)

    def stack(self, indices: Sequence[int], padding: int) -> Tensor:
        """Return rows as (B, T), padded on the right to the longest."""
        starts, lengths = self._of(indices)
        places = np.arange(lengths.max())
        is_real = places < lengths[:, None]
        return torch.from_numpy(np.where(is_real, self.flat[np.where(is_real, starts[:, None] + places, 0)], padding))

    def mask(self, indices: Sequence[int]) -> Tensor:
        """Return which places of the stacked rows are real, (B, T)."""
        _, lengths = self._of(indices)
        return torch.from_numpy(np.arange(lengths.max()) < lengths[:, None])

    def _of(self, indices: Sequence[int]) -> tuple[Array, Array]:
        chosen = np.asarray(indices)
        return self.starts[chosen], self.starts[chosen + 1] - self.starts[chosen]


def encodings(tokenizer: Tokenizer, texts: Sequence[Any]) -> Iterator[Encoding]:
    """Yield the encodings of texts or pairs, made some at a time: they take far more memory than what is kept."""
    for start in range(0, len(texts), 10_000):
        yield from tokenizer.encode_batch_fast(texts[start : start + 10_000])


def encoded_ids(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[list[int]]:
    """Yield the ids of texts."""
    for encoding in encodings(tokenizer, texts):
        yield encoding.ids


def predicted(batch: Batch) -> int:
    """Count the targets that are not ignored."""
    return int((batch["targets"] != IGNORED).sum())


def perplexity(loss: float) -> float:
    """Return e to the mean loss of a token, infinity where that is more than a number can be."""
    return math.exp(loss) if loss < MOST_EXPONENT else math.inf


def mean_of(scores: Sequence[tuple[float, int]]) -> float:
    """Return the mean of sums over counts."""
    totals, counts = zip(*scores, strict=True)
    return sum(totals) / sum(counts)
