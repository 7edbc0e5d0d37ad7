"""BERT's pretraining (Devlin et al. 2019, section 3.1): masked words, and whether a text follows another."""

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
from model.training.batches import equal_batches
from model.training.objectives.objective import IGNORED, Array, Batch, perplexity, predicted

VALIDATION_SEED = 0


@dataclass(frozen=True)
class _Examples:
    """Stretches of a stream of tokens, each cut in two: [start, cut) and [cut, end)."""

    start: Array
    cut: Array
    end: Array
    is_swapped: NDArray[np.bool_]  # whether the second part comes first
    follows: NDArray[np.bool_]  # whether what comes second is what stood behind the first, in the same document
    width: Array  # of the row that it fills, CLS, SEP and padding included


@dataclass
class MaskedLM:
    """Whole words masked, and whether the second of two texts follows the first; both losses are added.

    Documents are packed one behind the other, in a new order in each epoch, and cut into rows without regard to where
    they end. A row that holds the end of one is parted there; others anywhere between two sentences, and half of those
    change places (Lan et al. 2020, ALBERT): no text is spent on what belongs to something else.
    """

    tokenizer: Tokenizer
    length: int  # of most rows
    long_length: int  # of the others, so that all positions are learned
    long_share: float = 0.2  # of the tokens
    masked: float = 0.3  # of the words (Wettig et al. 2023, "Should You Mask 15% in Masked Language Modeling?")
    become_mask: float = 0.8  # of the masked tokens
    become_random: float = 0.1  # of the masked tokens; the rest stay as they are
    cut_short: float = 0.1  # of the examples, for texts in use are shorter
    metric: str = field(default="masked perplexity", init=False)
    higher_is_better: bool = field(default=False, init=False)
    has_fixed_shapes: bool = field(default=True, init=False)

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
        self.documents: list[Array] = []  # tokens
        self.begins: list[NDArray[np.int8]] = []  # of each token: 2 where a document begins, 1 a sentence, else 0
        for start in range(0, len(rows), 1000):  # encodings take far more memory than what is kept of them
            some = rows[start : start + 1000]
            sentences = [sentence for document in some for sentence in document]
            encoded = iter(self.tokenizer.encode_batch_fast(sentences, add_special_tokens=False))
            for document in some:
                ids = [next(encoded).ids for _ in document]
                if any(ids):
                    self._add(list(filter(None, ids)))
        self._pack(random.Random(VALIDATION_SEED))

    def _add(self, sentences: list[list[int]]) -> None:
        tokens = np.array([token for sentence in sentences for token in sentence])
        begins = np.zeros(len(tokens), np.int8)
        begins[np.cumsum([0, *(len(sentence) for sentence in sentences[:-1])])] = 1
        begins[0] = 2
        self.documents.append(tokens)
        self.begins.append(begins)

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Pack the documents anew, cut them into rows, and group those of one length."""
        self._pack(rng or random.Random(VALIDATION_SEED))
        width = self.examples.width
        batches = [
            batch
            for length in np.unique(width)
            for batch in equal_batches(np.flatnonzero(width == length), batch_tokens // int(length), rng)
        ]
        if rng:
            rng.shuffle(batches)
        return batches

    def _pack(self, rng: random.Random) -> None:
        self.seed = rng.getrandbits(32)  # of this epoch's masks
        generator = np.random.default_rng(rng.getrandbits(64))
        order = generator.permutation(len(self.documents))
        self.stream = np.concatenate([self.documents[index] for index in order])
        begins = np.concatenate([self.begins[index] for index in order])
        long = int(len(self.stream) * self.long_share)
        starts = np.concatenate(
            (np.arange(0, long, self.long_length - 3), np.arange(long, len(self.stream), self.length - 3))
        )
        end = np.append(starts[1:], len(self.stream))
        width = np.where(starts < long, self.long_length, self.length)
        is_whole = end - starts >= 2  # a row has two parts
        start, end, width = starts[is_whole], end[is_whole], width[is_whole]
        is_short = generator.random(len(start)) < self.cut_short
        end = np.where(is_short, start + generator.integers(2, end - start + 1), end)
        cut, is_parted = self._cut(start, end, begins, generator)
        is_swapped = ~is_parted & (generator.random(len(start)) < 0.5)
        self.examples = _Examples(start, cut, end, is_swapped, ~is_parted & ~is_swapped, width)

    @staticmethod
    def _cut(
        start: Array, end: Array, begins: NDArray[np.int8], generator: np.random.Generator
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Return where rows are parted, behind their first token, and whether a document begins there."""
        anywhere = generator.integers(start + 1, end)
        cut = anywhere
        is_parted = np.zeros(len(start), bool)
        for kind, begun_from in ((1, anywhere), (2, start + 1)):  # a document's begin counts for more than a sentence's
            places = np.append(np.flatnonzero(begins >= kind), len(begins))
            found = places[np.searchsorted(places, begun_from)]
            is_inside = found < end
            cut = np.where(is_inside, found, cut)
            is_parted = is_inside if kind == 2 else is_parted
        return cut, is_parted

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return input_ids, segment_ids, attention_mask (B, T), follows (B,), masked_places and targets (M,).

        masked_places count through the whole batch, row by row; M is the same for all batches of a size.
        """
        rows = np.asarray(indices)
        examples = self.examples
        start, cut, end, is_swapped = (
            values[rows, None] for values in (examples.start, examples.cut, examples.end, examples.is_swapped)
        )
        first = np.where(is_swapped, end - cut, cut - start)  # tokens of the first part
        length = end - start + 3
        place = np.arange(int(examples.width[rows].max()))
        is_first, is_second = (place >= 1) & (place <= first), (place >= first + 2) & (place < length - 1)
        behind_first = np.where(is_swapped, cut, start) + place - 1
        behind_second = np.where(is_swapped, start, cut) + place - first - 2
        source = np.where(is_first, behind_first, np.where(is_second, behind_second, 0))
        ids = np.where(is_first | is_second, self.stream[source], np.where(place < length, self.sep, 0))
        ids[:, 0] = self.cls
        rng = np.random.default_rng([self.seed, indices[0]])
        corrupted, places = self._corrupt(ids, is_first | is_second, rng)
        most = math.ceil(self.masked * ids.size * 1.15)
        corrupted.ravel()[places[most:]] = ids.ravel()[places[most:]]  # hardly ever any
        places = places[:most]
        targets = np.full(most, IGNORED, np.int64)
        targets[: len(places)] = ids.ravel()[places]
        return {
            "input_ids": torch.from_numpy(corrupted),
            "segment_ids": torch.from_numpy(((place >= first + 2) & (place < length)).astype(np.int64)),
            "attention_mask": torch.from_numpy(place < length),
            "follows": torch.from_numpy(examples.follows[rows].astype(np.int64)),
            "masked_places": torch.from_numpy(np.pad(places, (0, most - len(places)))),
            "targets": torch.from_numpy(targets),
        }

    def _corrupt(self, ids: Array, is_text: NDArray[np.bool_], rng: np.random.Generator) -> tuple[Array, Array]:
        """Mask whole words: 80 % of their tokens become [MASK], 10 % any token, 10 % stay; return ids and places."""
        word = np.cumsum(~self.continues[ids], axis=1)
        is_masked = np.take_along_axis(rng.random((len(ids), ids.shape[1] + 1)), word, axis=1) < self.masked
        is_masked &= is_text & ~np.isin(ids, self.specials)
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
            "masked perplexity": perplexity(words / count),
            "masked loss": words / count,
            "next-sentence loss": follows / rows,
            "next-sentence accuracy": right / rows,
        }
