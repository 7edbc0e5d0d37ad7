"""Translation: the target's next tokens, given the source."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from model.package.tokenizer import token_id
from model.training.batches import length_batches
from model.training.objectives.objective import (
    IGNORED,
    Array,
    Batch,
    Ragged,
    encoded_ids,
    mean_of,
    perplexity,
    predicted,
)
from model.training.tokenizers import END, PAD, START, language_token


@dataclass
class Seq2Seq:
    """Teacher forcing with label smoothing; the first source token names the target language.

    In training each token of a source is split with the probability `source_splits` into the two that it was merged of,
    and those again: words are then read in other parts in each epoch, as with BPE-dropout (Provilkov et al. 2020).
    """

    tokenizer: Tokenizer
    max_length: int
    label_smoothing: float
    source_splits: float = 0.0
    metric: str = field(default="perplexity", init=False)
    higher_is_better: bool = field(default=False, init=False)
    has_fixed_shapes: bool = field(default=False, init=False)

    def encode(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Encode (language, source, target) rows; pairs longer than `max_length` tokens are left out."""
        start, end = token_id(self.tokenizer, START), token_id(self.tokenizer, END)
        asked = {code: token_id(self.tokenizer, language_token(code)) for code in {language for language, _, _ in rows}}
        sources = encoded_ids(self.tokenizer, [source for _, source, _ in rows])
        targets = encoded_ids(self.tokenizer, [target for _, _, target in rows])
        pairs = [
            ([asked[language], *source, end], [start, *target, end])
            for (language, _, _), source, target in zip(rows, sources, targets, strict=True)
            if max(len(source), len(target)) + 2 <= self.max_length
        ]
        self.sources = self.sources_of_epoch = Ragged.of(source for source, _ in pairs)
        self.inputs = Ragged.of(target[:-1] for _, target in pairs)
        self.targets = Ragged.of(target[1:] for _, target in pairs)
        self.padding = token_id(self.tokenizer, PAD)

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Group pairs whose sides are of similar lengths, the longer one's first; without `rng` nothing is split."""
        self.sources_of_epoch = self.sources
        if rng and self.source_splits:
            splits = np.random.default_rng(rng.getrandbits(32))
            self.sources_of_epoch = split_tokens(self.sources, parts_of(self.tokenizer), self.source_splits, splits)
        lengths = np.stack([self.sources_of_epoch.lengths, self.targets.lengths], axis=1)
        return length_batches(lengths, batch_tokens, rng)

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return source_ids and attention_mask (B, S), target_ids and, shifted by one, targets (B, T)."""
        return {
            "source_ids": self.sources_of_epoch.stack(indices, self.padding),
            "attention_mask": self.sources_of_epoch.mask(indices),
            "target_ids": self.inputs.stack(indices, self.padding),
            "targets": self.targets.stack(indices, IGNORED),
        }

    def weight(self, batch: Batch) -> int:
        """Count the target tokens."""
        return predicted(batch)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean label-smoothed cross-entropy (Szegedy et al. 2016) of the target tokens."""
        return self._cross_entropy(model, batch, self.label_smoothing)

    def score(self, model: nn.Module, batch: Batch) -> tuple[float, int]:
        """Sum the negative log-likelihood of the target tokens, unsmoothed."""
        count = predicted(batch)
        return float(self._cross_entropy(model, batch, 0.0)) * count, count

    def summarise(self, scores: Sequence[tuple[float, int]]) -> dict[str, float]:
        """Name the score: perplexity per target token."""
        return {"perplexity": perplexity(mean_of(scores))}

    def _cross_entropy(self, model: nn.Module, batch: Batch, label_smoothing: float) -> Tensor:
        logits = model(batch["source_ids"], batch["attention_mask"], batch["target_ids"]).float()
        return cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), label_smoothing=label_smoothing)


def parts_of(tokenizer: Tokenizer) -> Array:
    """Return which two tokens each one of a BPE was merged of, (V, 2); -1 for those that are no merge."""
    parts = np.full((tokenizer.get_vocab_size(), 2), -1)
    for first, second in json.loads(tokenizer.to_str())["model"]["merges"]:
        parts[token_id(tokenizer, first + second)] = token_id(tokenizer, first), token_id(tokenizer, second)
    return parts


def split_tokens(rows: Ragged, parts: Array, probability: float, rng: np.random.Generator) -> Ragged:
    """Split tokens at random into their `parts` (V, 2), and those with the same probability again."""
    flat, starts = rows.flat, rows.starts
    is_new = np.ones(len(flat), bool)
    while is_new.any():
        is_split = is_new & (parts[flat, 0] >= 0) & (rng.random(len(flat)) < probability)
        places = np.concatenate([[0], np.cumsum(1 + is_split)])  # where each token begins now
        first = places[:-1][is_split]
        split = np.repeat(flat, 1 + is_split)
        split[first], split[first + 1] = parts[flat[is_split]].T
        is_new = np.zeros(len(split), bool)
        is_new[first] = is_new[first + 1] = True
        flat, starts = split, places[starts]
    return Ragged(flat, starts)
