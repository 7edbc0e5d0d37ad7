"""Translation: the target's next tokens, given the source."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from model.package.tokenizer import token_id
from model.training.data import length_batches
from model.training.objectives.objective import IGNORED, Batch, mean_of, pad, predicted
from model.training.tokenizers import END, PAD, START, language_token


@dataclass
class Seq2Seq:
    """Teacher forcing with label smoothing; the first source token names the target language."""

    tokenizer: Tokenizer
    max_length: int
    label_smoothing: float
    metric: str = field(default="perplexity", init=False)
    higher_is_better: bool = field(default=False, init=False)

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
