"""Translation: the target's next tokens, given the source."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from model.package.tokenizer import token_id
from model.training.data import length_batches
from model.training.objectives.objective import IGNORED, Batch, Ragged, encoded_ids, mean_of, predicted
from model.training.tokenizers import END, PAD, START, language_token


@dataclass
class Seq2Seq:
    """Teacher forcing with label smoothing; the first source token names the target language."""

    tokenizer: Tokenizer
    max_length: int
    label_smoothing: float
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
        self.sources = Ragged.of(source for source, _ in pairs)
        self.inputs = Ragged.of(target[:-1] for _, target in pairs)
        self.targets = Ragged.of(target[1:] for _, target in pairs)
        self.padding = token_id(self.tokenizer, PAD)

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Group pairs whose sides are of similar lengths, the longer one's first."""
        return length_batches(np.stack([self.sources.lengths, self.targets.lengths], axis=1), batch_tokens, rng)

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return source_ids and attention_mask (B, S), target_ids and, shifted by one, targets (B, T)."""
        return {
            "source_ids": self.sources.stack(indices, self.padding),
            "attention_mask": self.sources.mask(indices),
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
        return {"perplexity": math.exp(mean_of(scores))}

    def _cross_entropy(self, model: nn.Module, batch: Batch, label_smoothing: float) -> Tensor:
        logits = model(batch["source_ids"], batch["attention_mask"], batch["target_ids"]).float()
        return cross_entropy(logits.flatten(0, 1), batch["targets"].flatten(), label_smoothing=label_smoothing)
