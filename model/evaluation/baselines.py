"""What knows less than a transformer, for its accuracy to stand beside: the commonest label, and a bag of words."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from model.package.words import MARK, WITHOUT_SPACES, marked

Text = str | tuple[str, str]
Row = tuple[Text, int]

WORDS = 40_000  # the commonest, of a text, or of either sentence of a pair and of both
EPOCHS, BATCH, RATE, DECAY = 4, 64, 2e-3, 1e-5
LEAST_STEPS = 2_000  # few texts are seen more often, or it would be easy to beat
# Letters with their marks; in scripts without spaces each is a word.
_WORD = re.compile(rf"(?=\w)[{WITHOUT_SPACES}]{MARK}*|[^\W{WITHOUT_SPACES}](?:[^\W{WITHOUT_SPACES}]|{MARK})*")


def share_of_commonest(truth: Sequence[int]) -> float:
    """Return how often the label is right that is commonest there, which nobody knows who has only trained."""
    return Counter(truth).most_common(1)[0][1] / len(truth)


def bag_of_words(train: Sequence[Row], tests: Sequence[Sequence[Row]]) -> list[float]:
    """Return the accuracy on tests of a linear classifier of words; a pair's are marked by where they are."""
    counts = Counter(word for text, _ in train for word in _words(text))
    common = sorted(counts, key=lambda word: (-counts[word], word))[:WORDS]  # in the same order in every process
    number = {word: index for index, word in enumerate(common)}
    rows = [([number[word] for word in _words(text) if word in number], label) for text, label in train]
    torch.manual_seed(1)
    bag = nn.EmbeddingBag(len(number) + 1, 1 + max(label for _, label in train), mode="sum", sparse=False)
    nn.init.zeros_(bag.weight)
    optimizer = torch.optim.AdamW(bag.parameters(), lr=RATE, weight_decay=DECAY)
    rng = np.random.default_rng(1)
    steps = math.ceil(len(rows) / BATCH)
    for _ in range(max(EPOCHS, math.ceil(LEAST_STEPS / steps))):
        order = rng.permutation(len(rows))
        for start in range(0, len(rows), BATCH):
            chosen = [rows[index] for index in order[start : start + BATCH]]
            loss = cross_entropy(_scores(bag, [ids for ids, _ in chosen]), torch.tensor([label for _, label in chosen]))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return [_accuracy(bag, number, test) for test in tests]


def _accuracy(bag: nn.EmbeddingBag, number: dict[str, int], rows: Sequence[Row]) -> float:
    with torch.no_grad():
        scores = _scores(bag, [[number[word] for word in _words(text) if word in number] for text, _ in rows])
    truth: NDArray[np.int64] = np.array([label for _, label in rows])
    return float((scores.argmax(-1).numpy() == truth).mean())


def _scores(bag: nn.EmbeddingBag, rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """Return the labels' scores (N, labels); the last word is in every row, for how common the labels are."""
    everywhere = bag.num_embeddings - 1
    ids = torch.tensor([word for row in rows for word in (*row, everywhere)])
    ends = np.cumsum([0, *(len(row) + 1 for row in rows[:-1])])
    scores: torch.Tensor = bag(ids, torch.from_numpy(ends))
    return scores


def _words(text: Text) -> list[str]:
    """Return the different words of a text or a pair, marked by where they stand, in an order of their own."""
    if isinstance(text, str):
        return sorted(_words_of(text))
    first, second = map(_words_of, text)
    both = {f"both {word}" for word in first & second}
    return sorted({f"1 {word}" for word in first} | {f"2 {word}" for word in second} | both)


def _words_of(text: str) -> set[str]:
    text = unicodedata.normalize("NFC", text.lower())
    return {text[slice(*found.span())] for found in _WORD.finditer(marked(text))}
