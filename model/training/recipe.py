"""What a recipe is: everything that makes one run from the data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from model.architectures import Transformer
from model.card import Card
from model.config import HeadKind, TransformerConfig
from model.sizes import default_head
from model.training.files import Split
from model.training.objectives import Objective
from model.training.teacher import Teacher


@dataclass(frozen=True)
class Recipe:
    """One training run: what is read, how it is encoded, and how long and how fast it is learned."""

    name: str
    card: Card  # of what is learned here; what it begins with adds its training data
    size: str  # a key of model.sizes.SIZES
    read: Callable[[Path, Split], list[Any]]
    objective: Callable[[Any, TransformerConfig], Objective]  # of a tokenizer, or None for images
    epochs: float
    batch_tokens: int
    learning_rate: float
    warmup_steps: int
    starts_from: str | None = None  # the recipe whose run's weights a bundled package's run begins with
    texts: Callable[[list[Any]], Sequence[str]] = list  # what of the rows a new tokenizer is trained on
    train_tokenizer: Callable[[Sequence[str], int], Tokenizer] | None = None  # none for images
    initialise: Callable[[Transformer, Objective], None] | None = None  # what to do with fresh weights
    teach: Callable[[Teacher, Any, list[Any]], list[Any]] | None = None  # returns rows with what the teacher says
    head: HeadKind | None = None  # of an encoder of texts; others have their size's
    dropout: float | None = None  # the size's own unless given
    weight_decay: float = 0.01
    muon_learning_rate: float | None = None  # of the blocks' matrices, by Muon; none: AdamW learns them as all else
    layer_decay: float = 1.0  # learning rate of each layer beside the one above it
    clip_norm: float = 1.0
    accumulate: int = 1  # batches a step
    ema_decay: float = 0.0  # of the weights: what is kept of their moving average in each step; none is made of 0
    share_of_start: float = 0.0  # what of the weights that are kept is of those it began with, 0 to 1
    checkpoint_seconds: float = 60.0  # between two checkpoints
    evaluate_every: int = 1000  # steps
    patience: int | None = None  # evaluations without a better figure after which training ends
    seed: int = 1

    def configure(self, size: TransformerConfig) -> TransformerConfig:
        """Return a size with what this recipe wants of it: head, labels, dropout."""
        dropout = size.dropout if self.dropout is None else self.dropout
        labels = len(self.card.labels)
        head = replace(size.head, num_labels=labels) if self.head is None else default_head(self.head, labels)
        return replace(size, head=head, dropout=dropout)
