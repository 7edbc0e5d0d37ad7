"""What a model is trained to do: each objective encodes examples, collates them, gives the loss and scores it.

All objectives offer the same five methods, so one loop trains them all.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from model.package.tokenizer import token_id
from model.training.data import length_batches
from model.training.tokenizers import END, END_OF_TEXT, PAD, START, language_token

Batch = dict[str, Tensor]
IGNORED = -100  # the target that cross_entropy leaves out by default


class Objective(Protocol):
    """What the training loop asks of an objective."""

    def encode(self, rows: Sequence[Any]) -> None:
        """Turn rows of text into the examples to train or evaluate on."""

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Return one epoch as lists of example indices; without `rng` in a fixed order."""

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return the tensors of one batch, padded on the right."""

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean loss of a batch."""

    def score(self, model: nn.Module, batch: Batch) -> tuple[float, int]:
        """Return the sum of the validation score over a batch, and how many things it was summed over."""

    def summarise(self, mean_score: float) -> dict[str, float]:
        """Name the mean validation score."""


def pad(rows: Sequence[Sequence[int]], value: int) -> Tensor:
    """Stack rows of different lengths into (B, T), padded on the right to a multiple of 8."""
    length = math.ceil(max(map(len, rows)) / 8) * 8  # few distinct shapes
    return torch.tensor([[*row, *[value] * (length - len(row))] for row in rows])


@dataclass
class Classify:
    """Cross-entropy of one label per text, from CLS."""

    tokenizer: Tokenizer
    max_length: int

    def encode(self, rows: Sequence[tuple[str, int]]) -> None:
        """Encode (text, label) rows, cutting texts at `max_length` tokens with CLS and SEP."""
        self.tokenizer.enable_truncation(self.max_length)
        encodings = self.tokenizer.encode_batch([text for text, _ in rows])
        self.tokenizer.no_truncation()
        self.ids = [encoding.ids for encoding in encodings]
        self.labels = [label for _, label in rows]

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Group texts of similar length."""
        return length_batches([len(ids) for ids in self.ids], batch_tokens, rng)

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return input_ids and attention_mask (B, T), labels (B,)."""
        input_ids = pad([self.ids[index] for index in indices], 0)
        lengths = torch.tensor([len(self.ids[index]) for index in indices])
        mask = torch.arange(input_ids.shape[1]) < lengths[:, None]
        return {
            "input_ids": input_ids,
            "attention_mask": mask,
            "labels": torch.tensor([self.labels[index] for index in indices]),
        }

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean cross-entropy of the labels."""
        return cross_entropy(model(batch["input_ids"], batch["attention_mask"]).float(), batch["labels"])

    def score(self, model: nn.Module, batch: Batch) -> tuple[float, int]:
        """Count the correct labels."""
        logits = model(batch["input_ids"], batch["attention_mask"])
        return float((logits.argmax(-1) == batch["labels"]).sum()), len(batch["labels"])

    def summarise(self, mean_score: float) -> dict[str, float]:
        """Name the score: accuracy, 0 to 1."""
        return {"accuracy": mean_score}


@dataclass
class CausalLM:
    """Next-token cross-entropy over texts packed one behind the other, without padding."""

    tokenizer: Tokenizer
    block_length: int

    def encode(self, rows: Sequence[str]) -> None:
        """Encode texts, each to begin behind an end-of-text token."""
        self.end = token_id(self.tokenizer, END_OF_TEXT)
        self.texts = [encoding.ids for encoding in self.tokenizer.encode_batch(list(rows))]
        self._pack(list(range(len(self.texts))))

    def _pack(self, order: list[int]) -> None:
        stream = [token for index in order for token in (self.end, *self.texts[index])] + [self.end]
        size = self.block_length
        self.blocks = [stream[start : start + size + 1] for start in range(0, len(stream) - 1, size)]
        if len(self.blocks) > 1 and len(self.blocks[-1]) < size // 2:
            self.blocks.pop()

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Pack the texts anew in a shuffled order and group the blocks."""
        order = list(range(len(self.texts)))
        if rng:
            rng.shuffle(order)
        self._pack(order)
        return length_batches([len(block) for block in self.blocks], batch_tokens, rng)

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return input_ids and, shifted by one, targets (B, T)."""
        blocks = [self.blocks[index] for index in indices]
        return {
            "input_ids": pad([block[:-1] for block in blocks], self.end),
            "targets": pad([block[1:] for block in blocks], IGNORED),
        }

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean cross-entropy of the next tokens."""
        return cross_entropy(model(batch["input_ids"]).float().flatten(0, 1), batch["targets"].flatten())

    def score(self, model: nn.Module, batch: Batch) -> tuple[float, int]:
        """Sum the negative log-likelihood of the tokens."""
        count = int((batch["targets"] != IGNORED).sum())
        return float(self.loss(model, batch)) * count, count

    def summarise(self, mean_score: float) -> dict[str, float]:
        """Name the score: perplexity per token."""
        return {"perplexity": math.exp(mean_score)}


@dataclass
class Seq2Seq:
    """Teacher forcing with label smoothing; the first source token names the target language."""

    tokenizer: Tokenizer
    max_length: int
    label_smoothing: float

    def encode(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Encode (language, source, target) rows; pairs longer than `max_length` tokens are left out."""
        start, end = token_id(self.tokenizer, START), token_id(self.tokenizer, END)
        sources = self.tokenizer.encode_batch([source for _, source, _ in rows])
        targets = self.tokenizer.encode_batch([target for _, _, target in rows])
        self.pairs = []
        for (language, _, _), source, target in zip(rows, sources, targets, strict=True):
            pair = (
                [token_id(self.tokenizer, language_token(language)), *source.ids, end],
                [start, *target.ids, end],
            )
            if max(map(len, pair)) <= self.max_length:
                self.pairs.append(pair)

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Group pairs whose longer sides are of similar length."""
        return length_batches([max(map(len, pair)) for pair in self.pairs], batch_tokens, rng)

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return source_ids and attention_mask (B, S), target_ids and, shifted by one, targets (B, T)."""
        sources, targets = zip(*(self.pairs[index] for index in indices), strict=True)
        padding = token_id(self.tokenizer, PAD)
        source_ids = pad(sources, padding)
        return {
            "source_ids": source_ids,
            "attention_mask": source_ids != padding,
            "target_ids": pad([target[:-1] for target in targets], padding),
            "targets": pad([target[1:] for target in targets], IGNORED),
        }

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean label-smoothed cross-entropy (Szegedy et al. 2016) of the target tokens."""
        return self._cross_entropy(model, batch, self.label_smoothing)

    def score(self, model: nn.Module, batch: Batch) -> tuple[float, int]:
        """Sum the negative log-likelihood of the target tokens, unsmoothed."""
        count = int((batch["targets"] != IGNORED).sum())
        return float(self._cross_entropy(model, batch, 0.0)) * count, count

    def summarise(self, mean_score: float) -> dict[str, float]:
        """Name the score: perplexity per target token."""
        return {"perplexity": math.exp(mean_score)}

    def _cross_entropy(self, model: nn.Module, batch: Batch, label_smoothing: float) -> Tensor:
        logits = model(batch["source_ids"], batch["attention_mask"], batch["target_ids"]).float()
        return cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), label_smoothing=label_smoothing)
