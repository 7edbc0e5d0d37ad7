"""Next tokens: of any text, and of answers to instructions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from model.package.tokenizer import token_id
from model.training.batches import equal_batches, length_batches
from model.training.objectives.objective import IGNORED, Batch, Ragged, encoded_ids, mean_of, perplexity, predicted
from model.training.tokenizers import END_OF_TEXT


class _NextTokens:
    """What both have in common: the loss of the next tokens, and its exponential, the perplexity."""

    metric = "perplexity"
    higher_is_better = False

    def weight(self, batch: Batch) -> int:
        """Count the tokens to predict."""
        return predicted(batch)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean cross-entropy of the next tokens."""
        return cross_entropy(model(batch["input_ids"]).float().flatten(0, 1), batch["targets"].flatten())

    def score(self, model: nn.Module, batch: Batch) -> tuple[float, int]:
        """Sum the negative log-likelihood of the tokens."""
        count = predicted(batch)
        return float(self.loss(model, batch)) * count, count

    def summarise(self, scores: Sequence[tuple[float, int]]) -> dict[str, float]:
        """Name the score: perplexity per token."""
        return {"perplexity": perplexity(mean_of(scores))}


@dataclass
class CausalLM(_NextTokens):
    """Texts packed one behind the other, without padding."""

    tokenizer: Tokenizer
    block_length: int
    has_fixed_shapes: bool = field(default=True, init=False)

    def encode(self, rows: Sequence[str]) -> None:
        """Encode texts, each to begin behind an end-of-text token."""
        self.end = token_id(self.tokenizer, END_OF_TEXT)
        self.texts = [np.array([self.end, *ids]) for ids in encoded_ids(self.tokenizer, rows)]
        self._pack(list(range(len(self.texts))))

    def _pack(self, order: list[int]) -> None:
        stream = np.concatenate([*(self.texts[index] for index in order), [self.end]])
        size = self.block_length
        blocks = [stream[start : start + size + 1] for start in range(0, len(stream) - 1, size)]
        if len(blocks) > 1 and len(blocks[-1]) < size // 2:
            blocks.pop()
        self.inputs = Ragged.of(block[:-1] for block in blocks)
        self.targets = Ragged.of(block[1:] for block in blocks)

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Pack the texts anew in a shuffled order and group the blocks."""
        order = list(range(len(self.texts)))
        if rng:
            rng.shuffle(order)
        self._pack(order)
        return equal_batches(range(len(self.inputs)), batch_tokens // self.block_length, rng)

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return input_ids and, shifted by one, targets (B, T)."""
        return {"input_ids": self.inputs.stack(indices, self.end), "targets": self.targets.stack(indices, IGNORED)}


@dataclass
class Instruct(_NextTokens):
    """Instructions with their answers (supervised fine-tuning): only the answer, its end included, is learned."""

    tokenizer: Tokenizer
    max_length: int
    has_fixed_shapes: bool = field(default=False, init=False)

    def encode(self, rows: Sequence[tuple[str, str]]) -> None:
        """Encode (instruction, answer) rows; answers are cut where `max_length` tokens are full.

        Rows whose instruction leaves no room for an answer are left out.
        """
        self.end = token_id(self.tokenizer, END_OF_TEXT)
        instructions = self.tokenizer.encode_batch([instruction for instruction, _ in rows])
        answers = self.tokenizer.encode_batch([answer for _, answer in rows])
        examples = [
            ([self.end, *instruction.ids, *answer.ids, self.end][: self.max_length + 1], 1 + len(instruction.ids))
            for instruction, answer in zip(instructions, answers, strict=True)
            if len(instruction.ids) < self.max_length
        ]
        self.inputs = Ragged.of(ids[:-1] for ids, _ in examples)
        self.targets = Ragged.of([IGNORED] * (start - 1) + ids[start:] for ids, start in examples)

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Group examples of similar length."""
        return length_batches(self.inputs.lengths, batch_tokens, rng)

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return input_ids and, shifted by one and ignored within the instruction, targets (B, T)."""
        return {"input_ids": self.inputs.stack(indices, self.end), "targets": self.targets.stack(indices, IGNORED)}
