"""How alike two texts are, by reading both together (a cross-encoder; Reimers and Gurevych 2019, section 3)."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from model.training.objectives.classify import Classify
from model.training.objectives.objective import Batch
from model.training.objectives.pair import Pair, order_agreement


@dataclass
class ScorePairs:
    """Binary cross-entropy of scores, 0 to 1, from CLS; tokens are hidden in training as where labels are learned."""

    tokenizer: Tokenizer
    max_length: int  # of both texts, in tokens
    word_dropout: float = 0.0
    metric: str = field(default="Spearman", init=False)
    higher_is_better: bool = field(default=True, init=False)
    has_fixed_shapes: bool = field(default=False, init=False)

    def encode(self, rows: Sequence[Pair]) -> None:
        """Encode the pairs that have a score, cutting them at `max_length` tokens."""
        self._texts = Classify(self.tokenizer, self.max_length, self.word_dropout)
        self._texts.encode([((row.first, row.second), row.score) for row in rows if row.score is not None])

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Group pairs of similar length; without `rng` no token is hidden."""
        return self._texts.batches(batch_tokens, rng)

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return input_ids, segment_ids and attention_mask (B, T), and as labels the scores (B,)."""
        return self._texts.collate(indices)

    def weight(self, batch: Batch) -> int:
        """Count the pairs."""
        return self._texts.weight(batch)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean cross-entropy of the scores."""
        return binary_cross_entropy_with_logits(self.logits(model, batch), batch["labels"])

    def score(self, model: nn.Module, batch: Batch) -> tuple[list[float], list[float]]:
        """Return the logits and the scores of pairs."""
        return self.logits(model, batch).tolist(), batch["labels"].tolist()

    def summarise(self, scores: Sequence[tuple[list[float], list[float]]]) -> dict[str, float]:
        """Name the rank correlation of logits and scores, −1 to 1."""
        return order_agreement(scores)

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return what a model says of pairs, (B,); its sigmoid is the score."""
        logits: Tensor = model(batch["input_ids"], batch["attention_mask"], batch["segment_ids"])
        return logits.float().squeeze(-1)
