"""Answers found in a text: where they start and where they end (Devlin et al. 2019, section 4.2; SQuAD 1.1)."""

from __future__ import annotations

import random
import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from model.training.batches import length_batches
from model.training.objectives.objective import Batch, Ragged

MAX_ANSWER_TOKENS = 30
SPECIAL_TOKENS = 4  # of a question with its text, at most


@dataclass(frozen=True)
class Question:
    """A question about a text, and its answers with the character where each starts."""

    question: str
    context: str
    answers: Sequence[tuple[str, int]]

    def marks(self, text: str) -> tuple[float, bool]:
        """Return the F1 of an answer's words, 0 to 1, and whether it matches, against the nearest true answer."""
        truths = [truth for truth, _ in self.answers]
        is_exact = any(_normalised(text) == _normalised(truth) for truth in truths)
        return max(_overlap(text, truth) for truth in truths), is_exact


@dataclass
class Answer:
    """Cross-entropy of the first and the last token; long texts come in windows that overlap by `stride` tokens.

    A window without the answer points at CLS.
    """

    tokenizer: Tokenizer
    max_length: int
    stride: int
    metric: str = field(default="F1", init=False)
    higher_is_better: bool = field(default=True, init=False)
    has_fixed_shapes: bool = field(default=False, init=False)

    def encode(self, rows: Sequence[Question]) -> None:
        """Encode questions with their texts."""
        self.rows = rows
        self.tokenizer.no_truncation()
        questions = [self._shortened(row.question) for row in rows]
        self.tokenizer.enable_truncation(self.max_length, stride=self.stride, strategy="only_second")
        encoded = self.tokenizer.encode_batch(
            [(question, row.context) for question, row in zip(questions, rows, strict=True)]
        )
        self.tokenizer.no_truncation()
        self.windows: list[tuple[int, Encoding]] = []  # of which row
        for index, encoding in enumerate(encoded):
            self.windows += [(index, window) for window in (encoding, *encoding.overflowing)]
        self.spans = torch.tensor([_span(window, rows[index].answers[0]) for index, window in self.windows])
        self.ids = Ragged.of(window.ids for _, window in self.windows)
        self.segments = Ragged.of(window.type_ids for _, window in self.windows)

    def _shortened(self, question: str) -> str:
        """Return a question that leaves room for windows that are longer than they overlap, and for special tokens."""
        longest = self.max_length - SPECIAL_TOKENS - 2 * self.stride
        if len(question.encode()) <= longest:  # as mostly; a token has a byte at least
            return question
        offsets = self.tokenizer.encode(question, add_special_tokens=False).offsets
        return question if len(offsets) <= longest else question[: offsets[longest - 1][1]]

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Group windows of similar length."""
        return length_batches(self.ids.lengths, batch_tokens, rng)

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return input_ids, segment_ids, attention_mask (B, T), spans (B, 2) of answers, and windows (B,)."""
        return {
            "input_ids": self.ids.stack(indices, 0),
            "segment_ids": self.segments.stack(indices, 0),
            "attention_mask": self.ids.mask(indices),
            "spans": self.spans[list(indices)],
            "windows": torch.tensor(list(indices)),
        }

    def weight(self, batch: Batch) -> int:
        """Count the windows."""
        return len(batch["spans"])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean cross-entropy of the starts and the ends."""
        logits = self.logits(model, batch)
        starts, ends = (cross_entropy(logits[:, :, side], batch["spans"][:, side]) for side in (0, 1))
        return (starts + ends) / 2

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return float logits (B, T, 2) of starts and ends; padding is out of the question."""
        logits = model(batch["input_ids"], batch["attention_mask"], batch["segment_ids"]).float()
        return logits.masked_fill(~batch["attention_mask"][:, :, None], torch.finfo(torch.float32).min)

    def score(self, model: nn.Module, batch: Batch) -> list[tuple[int, float, str]]:
        """Return each window's best answer: of which row, how good it seems, its text."""
        answers = []
        for place, logits in zip(batch["windows"].tolist(), self.logits(model, batch).cpu(), strict=True):
            row, window = self.windows[place]
            start, end, score = best_span(window, logits)
            answers.append((row, score, self.rows[row].context[window.offsets[start][0] : window.offsets[end][1]]))
        return answers

    def summarise(self, scores: Sequence[list[tuple[int, float, str]]]) -> dict[str, float]:
        """Name exact match and F1 of the best windows' answers, 0 to 1, each against the nearest true answer."""
        best: dict[int, tuple[float, str]] = {}
        for row, score, text in (answer for batch in scores for answer in batch):
            best[row] = max(best.get(row, (score, text)), (score, text))
        marks = [self.rows[row].marks(text) for row, (_, text) in best.items()]
        overlap, exact = (sum(each) / len(marks) for each in zip(*marks, strict=True))
        return {"F1": overlap, "exact match": exact}


def best_span(window: Encoding, logits: Tensor) -> tuple[int, int, float]:
    """Return the first and the last token of a window's best answer, and how good it seems, of logits (T, 2).

    That is against "no answer here", so that windows of one text compare.
    """
    length = len(window.ids)
    is_text = torch.tensor([text == 1 for text in window.sequence_ids])  # the second, which is the context
    sums = logits[:length, None, 0] + logits[None, :length, 1]
    allowed = torch.ones(length, length, dtype=torch.bool).triu().tril(MAX_ANSWER_TOKENS - 1)
    sums = sums.masked_fill(~(allowed & is_text[:, None] & is_text[None]), -torch.inf)
    start, end = divmod(int(sums.argmax()), length)
    return start, end, float(sums.max() - logits[0].sum())


def _span(window: Encoding, answer: tuple[str, int]) -> tuple[int, int]:
    """Return the first and the last token of an answer in a window, or CLS twice if it does not hold all of it."""
    text, start = answer
    first, last = window.char_to_token(start, 1), window.char_to_token(start + len(text) - 1, 1)
    return (first, last) if first is not None and last is not None else (0, 0)


def _normalised(text: str) -> str:
    """Return what SQuAD's own scoring compares: lower case, no punctuation, no articles."""
    bare = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", bare).split())


def _overlap(text: str, truth: str) -> float:
    """Return the F1 of the words two answers share."""
    ours, theirs = _normalised(text).split(), _normalised(truth).split()
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * shared / (len(ours) + len(theirs)) if shared else float(ours == theirs)
