"""BERT's pretraining (Devlin et al. 2019, section 3.1 and A.1): masked words, and whether B follows A."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from model.architectures import TextEncoder
from model.architectures.heads import PretrainingHead
from model.package.tokenizer import token_id
from model.training.data import length_batches
from model.training.objectives.objective import IGNORED, Batch, predicted

Array = NDArray[np.int64]

VALIDATION_SEED = 0


@dataclass(frozen=True)
class _Example:
    """Two stretches of text, the second from behind the first or from elsewhere."""

    first: list[int]
    second: list[int]
    follows: bool


@dataclass
class MaskedLM:
    """Whole words masked, and next-sentence prediction; both losses are added."""

    tokenizer: Tokenizer
    max_length: int
    masked: float = 0.15  # of the words
    become_mask: float = 0.8  # of the masked tokens
    become_random: float = 0.1  # of the masked tokens; the rest stay as they are
    cut_short: float = 0.1  # of the examples, for texts in use are shorter
    metric: str = field(default="masked perplexity", init=False)
    higher_is_better: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        ids = (token_id(self.tokenizer, token) for token in ("[CLS]", "[SEP]", "[MASK]"))
        self.cls, self.sep, self.mask = ids
        vocabulary = self.tokenizer.get_vocab()
        self.continues = np.zeros(len(vocabulary), bool)  # pieces inside a word
        self.continues[[i for token, i in vocabulary.items() if token.startswith("##")]] = True
        specials = {token for token in vocabulary if token.startswith("[") and token.endswith("]") and len(token) > 2}
        self.specials = np.array(sorted(vocabulary[token] for token in specials))

    def encode(self, rows: Sequence[Sequence[str]]) -> None:
        """Encode documents, each a list of sentences."""
        sentences = [sentence for document in rows for sentence in document]
        encoded = iter(self.tokenizer.encode_batch(sentences, add_special_tokens=False))
        self.documents = []
        for document in rows:
            ids = [next(encoded).ids for _ in document]
            self.documents.append([sentence for sentence in ids if sentence])
        self.documents = [document for document in self.documents if document]
        self._pair(random.Random(VALIDATION_SEED))

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Pair the sentences anew, and group the pairs."""
        self._pair(rng or random.Random(VALIDATION_SEED))
        # All rows have the same length, so that every step has the same shape.
        return length_batches([self.max_length] * len(self.examples), batch_tokens, rng)

    def _pair(self, rng: random.Random) -> None:
        self.seed = rng.getrandbits(32)  # of this epoch's masks
        self.examples = [example for index in range(len(self.documents)) for example in self._pairs_of(index, rng)]

    def _pairs_of(self, index: int, rng: random.Random) -> list[_Example]:
        """Cut one document into examples: sentences until the length is reached, parted in two at random."""
        document, most = self.documents[index], self.max_length - 3
        examples: list[_Example] = []
        chunk: list[list[int]] = []
        length, place = 0, 0
        target = rng.randint(2, most) if rng.random() < self.cut_short else most
        while place < len(document):
            chunk.append(document[place])
            length += len(document[place])
            place += 1
            if place < len(document) and length < target:
                continue
            cut = rng.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
            first = [token for sentence in chunk[:cut] for token in sentence]
            follows = len(chunk) > 1 and rng.random() < 0.5
            if follows:
                second = [token for sentence in chunk[cut:] for token in sentence]
            else:
                second = self._elsewhere(index, target - len(first), rng)
                place -= len(chunk) - cut  # what was not used comes again
            examples.append(_Example(*_shorten(first, second, most, rng), follows))
            chunk, length = [], 0
            target = rng.randint(2, most) if rng.random() < self.cut_short else most
        return examples

    def _elsewhere(self, index: int, length: int, rng: random.Random) -> list[int]:
        """Return about `length` tokens of another document, from a random sentence on."""
        other = rng.randrange(len(self.documents) - 1) if len(self.documents) > 1 else index
        document = self.documents[other + (other >= index) if len(self.documents) > 1 else index]
        ids: list[int] = []
        for sentence in document[rng.randrange(len(document)) :]:
            ids += sentence
            if len(ids) >= length:
                break
        return ids

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return input_ids, segment_ids, attention_mask (B, T), follows (B,), masked_places and targets (M,).

        masked_places count through the whole batch, row by row; M is the same for all batches of a size.
        """
        shape = len(indices), self.max_length
        ids, segments, length = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(len(indices), np.int64)
        for row, index in enumerate(indices):
            example = self.examples[index]
            tokens = [self.cls, *example.first, self.sep, *example.second, self.sep]
            length[row] = len(tokens)
            ids[row, : len(tokens)] = tokens
            segments[row, len(example.first) + 2 : len(tokens)] = 1
        rng = np.random.default_rng([self.seed, indices[0]])
        corrupted, places = self._corrupt(ids, length, rng)
        most = math.ceil(self.masked * ids.size * 1.25)
        corrupted.ravel()[places[most:]] = ids.ravel()[places[most:]]  # hardly ever any
        places = places[:most]
        targets = np.full(most, IGNORED, np.int64)
        targets[: len(places)] = ids.ravel()[places]
        return {
            "input_ids": torch.from_numpy(corrupted),
            "segment_ids": torch.from_numpy(segments),
            "attention_mask": torch.from_numpy(np.arange(self.max_length) < length[:, None]),
            "follows": torch.tensor([int(self.examples[index].follows) for index in indices]),
            "masked_places": torch.from_numpy(np.pad(places, (0, most - len(places)))),
            "targets": torch.from_numpy(targets),
        }

    def _corrupt(self, ids: Array, length: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Mask whole words: 80 % of their tokens become [MASK], 10 % any token, 10 % stay; return ids and places."""
        is_special = np.isin(ids, self.specials) | (np.arange(ids.shape[1]) >= length[:, None])
        word = np.cumsum(~self.continues[ids], axis=1)
        is_masked = np.take_along_axis(rng.random((len(ids), ids.shape[1] + 1)), word, axis=1) < self.masked
        is_masked &= ~is_special
        fate = rng.random(ids.shape)
        others = rng.integers(int(self.specials.max()) + 1, len(self.continues), ids.shape)
        corrupted = np.where(is_masked & (fate < self.become_mask), self.mask, ids)
        is_random = is_masked & (fate >= self.become_mask) & (fate < self.become_mask + self.become_random)
        corrupted = np.where(is_random, others, corrupted)
        return corrupted, rng.permutation(np.flatnonzero(is_masked))

    def weight(self, batch: Batch) -> int:
        """Count the masked tokens."""
        return predicted(batch)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the sum of both mean losses."""
        words, follows = self._losses(model, batch)
        return words + follows

    def _losses(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        words, follows = self._logits(model, batch)
        return cross_entropy(words.float(), batch["targets"]), cross_entropy(follows.float(), batch["follows"])

    def _logits(self, model: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
        assert isinstance(model, TextEncoder) and isinstance(model.head, PretrainingHead)
        hidden = model.encode(batch["input_ids"], batch["attention_mask"], batch["segment_ids"])
        # Only the masked positions reach the vocabulary, which is the costliest product.
        masked = hidden.flatten(0, 1)[batch["masked_places"]]
        return model.head.word_logits(masked, model.embeddings.words), model.head.follows_logits(hidden)

    def score(self, model: nn.Module, batch: Batch) -> tuple[float, int, float, int, int]:
        """Return the sums of both losses, what they were summed over, and the right guesses of what follows."""
        words, follows = self._logits(model, batch)
        targets, count, rows = batch["targets"], predicted(batch), len(batch["follows"])
        right = int((follows.argmax(-1) == batch["follows"]).sum())
        return (
            float(cross_entropy(words.float(), targets, reduction="sum")),
            count,
            float(cross_entropy(follows.float(), batch["follows"], reduction="sum")),
            rows,
            right,
        )

    def summarise(self, scores: Sequence[tuple[float, int, float, int, int]]) -> dict[str, float]:
        """Name both losses, and what they mean."""
        words, count, follows, rows, right = (sum(column) for column in zip(*scores, strict=True))
        return {
            "masked perplexity": math.exp(words / count),
            "masked loss": words / count,
            "next-sentence loss": follows / rows,
            "next-sentence accuracy": right / rows,
        }


def _shorten(first: list[int], second: list[int], most: int, rng: random.Random) -> tuple[list[int], list[int]]:
    """Take tokens from the longer one, at either end, until both fit."""
    excess = max(0, len(first) + len(second) - most)
    while excess > 0:
        longer = first if len(first) > len(second) else second
        # As many as make it as short as the other one, but at least one, and no more than there are too many.
        count = min(excess, max(1, abs(len(first) - len(second))))
        left = rng.randint(0, count)
        kept = longer[left : len(longer) - (count - left)]
        first, second = (kept, second) if longer is first else (first, kept)
        excess -= count
    return first, second
