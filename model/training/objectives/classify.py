"""One label for a text, or for a pair of texts."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from model.package.tokenizer import token_id
from model.training.batches import length_batches
from model.training.objectives.objective import Batch, Ragged, encodings, mean_of
from model.training.tokenizers import UNKNOWN

logger = logging.getLogger(__name__)

MOST_UNKNOWN = 0.2  # of all tokens; more are another script's


@dataclass
class Classify:
    """Cross-entropy of one label, from CLS.

    In training each token is hidden ([MASK]) with the probability `word_dropout`, so that no single word decides (Iyyer
    et al. 2015). A batch holds `most_texts` at most: of short texts a batch of many tokens would be too large a step.
    """

    tokenizer: Tokenizer
    max_length: int
    word_dropout: float = 0.0
    most_texts: int | None = None
    metric: str = field(default="accuracy", init=False)
    higher_is_better: bool = field(default=True, init=False)
    has_fixed_shapes: bool = field(default=False, init=False)

    def encode(self, rows: Sequence[tuple[str | tuple[str, str], float | tuple[float, ...]]]) -> None:
        """Encode (text or pair, label) rows, cutting them at `max_length` tokens with CLS and SEP.

        In place of a label there may be probabilities of all labels, of all rows then.
        """
        self.tokenizer.enable_truncation(self.max_length)
        ids, segments, cut = [], [], 0
        for encoding in encodings(self.tokenizer, [text for text, _ in rows]):
            ids.append(np.array(encoding.ids))
            cut += bool(encoding.overflowing)
            segments.append(np.array(encoding.type_ids))
        self.tokenizer.no_truncation()
        self.ids, self.segments = Ragged.of(ids), Ragged.of(segments)
        if cut:
            logger.warning(
                "%s of %s texts are longer than %d tokens, and only their beginnings are read; a server refuses such "
                "texts unless a request has them truncated",
                f"{cut:,}",
                f"{len(rows):,}",
                self.max_length,
            )
        unknown = float((self.ids.flat == self.tokenizer.token_to_id(UNKNOWN)).mean()) if rows else 0.0
        if unknown > MOST_UNKNOWN:
            logger.warning(
                "%.0f %% of the texts' tokens are %s: the tokenizer does not know their letters, of which nothing is "
                "learned; begin with a run that reads this script",
                100 * unknown,
                UNKNOWN,
            )
        self.labels = torch.tensor([label for _, label in rows])
        self.seed: int | None = None

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Group texts of similar length; without `rng` no token is hidden."""
        self.seed = rng.getrandbits(32) if rng else None
        return length_batches(self.ids.lengths, batch_tokens, rng, self.most_texts)

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return input_ids, segment_ids and attention_mask (B, T), labels (B,) or their probabilities (B, labels)."""
        return {
            "input_ids": self._hide(self.ids.stack(indices, 0), indices[0]),
            "segment_ids": self.segments.stack(indices, 0),
            "attention_mask": self.ids.mask(indices),
            "labels": self.labels[list(indices)],
        }

    def _hide(self, ids: Tensor, first: int) -> Tensor:
        """Hide some tokens of (B, T), never special ones."""
        if self.seed is None or not self.word_dropout:
            return ids
        mask, separator = (token_id(self.tokenizer, token) for token in ("[MASK]", "[SEP]"))
        chosen = np.random.default_rng([self.seed, first]).random(ids.shape) < self.word_dropout
        return ids.masked_fill(torch.from_numpy(chosen) & (ids > separator), mask)  # special tokens have the first ids

    def weight(self, batch: Batch) -> int:
        """Count the texts."""
        return len(batch["labels"])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean cross-entropy of the labels."""
        return cross_entropy(self.logits(model, batch).float(), batch["labels"])

    def score(self, model: nn.Module, batch: Batch) -> tuple[float, int]:
        """Count the correct labels."""
        return float((self.logits(model, batch).argmax(-1) == batch["labels"]).sum()), len(batch["labels"])

    def summarise(self, scores: Sequence[tuple[float, int]]) -> dict[str, float]:
        """Name the score: accuracy, 0 to 1."""
        return {"accuracy": mean_of(scores)}

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return what a model says of each text, (B, labels)."""
        logits: Tensor = model(batch["input_ids"], batch["attention_mask"], batch["segment_ids"])
        return logits
