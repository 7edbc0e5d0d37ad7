"""Named entities: a tag for each word, learned and read at its first piece (Devlin et al. 2019, section 5.3).

Words are what the tokenizer takes for them, as they are where texts are tagged: of "O'Brien" or "St." in the data each
letter and mark that it parts has a tag, and those behind the first go on with what it begins.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

from tokenizers import Encoding, Tokenizer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from model.training.batches import length_batches
from model.training.objectives.objective import IGNORED, Batch, Ragged, predicted

Entity = tuple[int, int, str]  # first word, the word behind the last, kind


class Compared(NamedTuple):
    """The entities found in a sentence, and those that are in it."""

    found: set[Entity]
    true: set[Entity]


@dataclass
class Tag:
    """Cross-entropy of BIO tags; scored by whole entities, as at CoNLL."""

    tokenizer: Tokenizer
    max_length: int
    labels: Sequence[str]
    metric: str = field(default="entity F1", init=False)
    higher_is_better: bool = field(default=True, init=False)
    has_fixed_shapes: bool = field(default=False, init=False)

    def encode(self, rows: Sequence[tuple[list[str], list[str]]]) -> None:
        """Encode (words, tags) rows, cutting them at `max_length` tokens."""
        self.tokenizer.enable_truncation(self.max_length)
        encodings = self.tokenizer.encode_batch([" ".join(words) for words, _ in rows])
        self.tokenizer.no_truncation()
        self.ids = Ragged.of(encoding.ids for encoding in encodings)
        self.targets = Ragged.of(
            self._targets(encoding, words, tags) for encoding, (words, tags) in zip(encodings, rows, strict=True)
        )

    def _targets(self, encoding: Encoding, words: Sequence[str], tags: Sequence[str]) -> list[int]:
        """Return a number for the first token of each of the tokenizer's words, and of others that they count not."""
        starts = list(accumulate((len(word) + 1 for word in words[:-1]), initial=0))
        before, last = None, -1
        targets = []
        for word, (start, _) in zip(encoding.word_ids, encoding.offsets, strict=True):  # None at CLS and SEP
            if word is None or word == before:
                targets.append(IGNORED)
            else:
                place = bisect_right(starts, start) - 1
                tag = tags[place] if place != last else tags[place].replace("B-", "I-", 1)
                targets.append(self.labels.index(tag))
                last = place
            before = word
        return targets

    def batches(self, batch_tokens: int, rng: random.Random | None) -> list[list[int]]:
        """Group sentences of similar length."""
        return length_batches(self.ids.lengths, batch_tokens, rng)

    def collate(self, indices: Sequence[int]) -> Batch:
        """Return input_ids, attention_mask and targets (B, T)."""
        return {
            "input_ids": self.ids.stack(indices, 0),
            "attention_mask": self.ids.mask(indices),
            "targets": self.targets.stack(indices, IGNORED),
        }

    def weight(self, batch: Batch) -> int:
        """Count the words."""
        return predicted(batch)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the mean cross-entropy of the words' tags."""
        logits = model(batch["input_ids"], batch["attention_mask"]).float()
        return cross_entropy(logits.flatten(0, 1), batch["targets"].flatten())

    def score(self, model: nn.Module, batch: Batch) -> list[Compared]:
        """Return each sentence's entities, as they are found and as they are."""
        return self.compared(model(batch["input_ids"], batch["attention_mask"]), batch)

    def compared(self, logits: Tensor, batch: Batch) -> list[Compared]:
        """Return each sentence's entities, as logits (B, T, labels) have them and as they are."""
        sentences = []
        for guesses, targets in zip(logits.argmax(-1).tolist(), batch["targets"].tolist(), strict=True):
            pairs = [pair for pair in zip(guesses, targets, strict=True) if pair[1] != IGNORED]
            found, true = (set(entities([self.labels[pair[side]] for pair in pairs])) for side in (0, 1))
            sentences.append(Compared(found, true))
        return sentences

    def summarise(self, scores: Iterable[Sequence[Compared]]) -> dict[str, float]:
        """Name precision, recall and F1 of whole entities, 0 to 1."""
        sentences = [sentence for batch in scores for sentence in batch]
        right = sum(len(sentence.found & sentence.true) for sentence in sentences)
        named, there = (sum(len(each) for each in side) for side in zip(*sentences, strict=True))
        precision, recall = right / max(1, named), right / max(1, there)
        both = max(precision + recall, 1e-9)
        return {"entity F1": 2 * precision * recall / both, "precision": precision, "recall": recall}


def entities(tags: Sequence[str]) -> Iterator[Entity]:
    """Yield the entities of BIO tags; an I that continues nothing begins an entity, as conlleval reads it."""
    start, kind = 0, ""
    for place, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        if kind and (prefix != "I" or name != kind):
            yield start, place, kind
            kind = ""
        if prefix != "O" and not kind:
            start, kind = place, name
