"""What the training loop asks of an objective, and what objectives share."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

Batch = dict[str, Tensor]
IGNORED = -100  # the target that cross_entropy leaves out by default


class Objective(Protocol):
    """What a model is trained to do. All objectives offer the same methods, so one loop trains them all."""

    metric: str  # the one of `summarise` that decides which weights are best
    higher_is_better: bool

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


def pad(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    """Stack rows of different lengths into (B, T), padded on the right to a multiple of 8."""
    length = math.ceil(max(map(len, rows)) / 8) * 8  # few distinct shapes
    return torch.tensor([[*row, *[value] * (length - len(row))] for row in rows])


def mask_of(rows: Sequence[Sequence[int]]) -> Tensor:
    """Return the attention mask (B, T) of rows that `pad` stacks."""
    lengths = torch.tensor([len(row) for row in rows])
    return torch.arange(math.ceil(int(lengths.max()) / 8) * 8) < lengths[:, None]


def predicted(batch: Batch) -> int:
    """Count the targets that are not ignored."""
    return int((batch["targets"] != IGNORED).sum())


def mean_of(scores: Sequence[tuple[float, int]]) -> float:
    """Return the mean of sums over counts."""
    totals, counts = zip(*scores, strict=True)
    return sum(totals) / sum(counts)
