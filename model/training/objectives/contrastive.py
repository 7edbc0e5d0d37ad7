"""Sentence vectors: alike for texts that mean alike (SimCSE's supervised loss, Gao et al. 2021; CoSENT for scores)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from model.training.batches import length_batches
from model.training.objectives.objective import Batch, Ragged, encoded_ids
from model.training.objectives.pair import Pair, order_agreement


@dataclass
class Contrastive:
    """Texts that belong together against all others of the batch; texts with scores in the scores' order.

    A batch has pairs of one kind only, and none twice. Those without scores have no text in common either, for a pair
    would be held against what means the same. Those of unknown score teach nothing. Cosines are divided by
    `temperature`.
    """

    tokenizer: Tokenizer
    max_length: int
    temperature: float
    metric: str = field(default="Spearman", init=False)
    higher_is_better: bool = field(default=True, init=False)
    has_fixed_shapes: bool = field(default=False, init=False)

    def encode(self, rows: Sequence[Pair]) -> None:
        """Encode pairs, cutting texts at `max_length` tokens."""
        self.tokenizer.enable_truncation(self.max_length)
        texts = [text for row in rows for text in (row.first, row.second)]
        self.ids = Ragged.of(encoded_ids(self.tokenizer, texts))  # of both texts of the first pair, then the second
        self.tokenizer.no_truncation()
        self.scores = [row.score for row in rows]

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Group pairs of one kind and of similar length; texts are the same if the model reads the same tokens."""
        texts = [self.ids[index].tobytes() for index in range(len(self.ids))]
        lengths = 2 * np.maximum(self.ids.lengths[::2], self.ids.lengths[1::2])
        batches: list[list[int]] = []
        for scored in (False, True):
            kind = [index for index, score in enumerate(self.scores) if (score is not None) == scored]
            pairs = (frozenset(texts[2 * index : 2 * index + 2]) for index in kind)
            apart = [frozenset((both,)) if scored else both for both in pairs]
            grouped = length_batches(lengths[kind], batch_tokens, rng, apart=apart)
            batches += [[kind[place] for place in batch] for batch in grouped]
        if rng:
            rng.shuffle(batches)
        return batches

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return input_ids and attention_mask (2B, T), first texts before second ones, and scores (B,) if any."""
        texts = [2 * index + side for side in (0, 1) for index in indices]
        batch = {"input_ids": self.ids.stack(texts, 0), "attention_mask": self.ids.mask(texts)}
        scores = [self.scores[index] for index in indices]
        return batch if scores[0] is None else {**batch, "scores": torch.tensor(scores)}

    def weight(self, batch: Batch) -> int:
        """Count the pairs."""
        return len(batch["input_ids"]) // 2

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean loss of pairs that belong together, or that of the order of scored ones."""
        first, second = self._vectors(model, batch)
        if "scores" in batch:
            return self._order_loss((first * second).sum(-1) / self.temperature, batch["scores"])
        with torch.autocast(first.device.type, enabled=False):  # halves would be too coarse for so small a temperature
            cosines = first @ second.T / self.temperature  # (B, B); the diagonal belongs together
        truth = torch.arange(len(cosines), device=cosines.device)
        return (cross_entropy(cosines, truth) + cross_entropy(cosines.T, truth)) / 2

    @staticmethod
    def _order_loss(cosines: Tensor, scores: Tensor) -> Tensor:
        """Return log(1 + Σ exp(cos of the less alike − cos of the more alike)) over all pairs of pairs."""
        differences = cosines[:, None] - cosines[None]
        wrong = torch.where(scores[:, None] < scores[None], differences, -torch.inf)
        return torch.cat((wrong.flatten(), wrong.new_zeros(1))).logsumexp(0)

    def _vectors(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        first, second = model(batch["input_ids"], batch["attention_mask"]).float().chunk(2)
        return first, second

    def score(self, model: nn.Module, batch: Batch) -> tuple[list[float], list[float]]:
        """Return the cosines and the scores of scored pairs."""
        return self.cosines(model, batch).tolist(), batch["scores"].tolist()

    def cosines(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the cosine of each pair's vectors, (B,)."""
        first, second = self._vectors(model, batch)
        return (first * second).sum(-1)

    def summarise(self, scores: Sequence[tuple[list[float], list[float]]]) -> dict[str, float]:
        """Name the rank correlation of cosines and scores, −1 to 1."""
        return order_agreement(scores)
