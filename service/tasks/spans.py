"""The best answers in a text, by how likely each token is the first and the last of one (Devlin et al. 2019, 4.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from service.engine.session import Array
from service.schemas import Span
from service.tasks.entities import trimmed
from service.tasks.long_texts import LongText
from service.tasks.scores import softmax


@dataclass(frozen=True)
class Found:
    """Tokens from `first` to `last` of a text, as an answer."""

    first: int
    last: int
    score: float


def best_spans(logits: Array, text: LongText, window: range, top_k: int, max_tokens: int) -> tuple[list[Found], float]:
    """Return a window's likeliest answers, and how likely it holds none, of logits (T, 2) of first and last tokens.

    A span's score is the probability of its first token times that of its last. Of what is not the text's only the
    window's first token, CLS, can be meant: it stands for there being no answer.
    """
    begin = len(text.before.ids)
    real = np.concatenate([logits[:1], logits[begin : begin + len(window)]])  # CLS, and the text's
    starts, ends = softmax(real[:, 0]), softmax(real[:, 1])
    none = float(starts[0] * ends[0])
    return _likeliest(starts[1:], ends[1:], window.start, top_k, max_tokens), none


def _likeliest(starts: Array, ends: Array, offset: int, top_k: int, max_tokens: int) -> list[Found]:
    count = len(starts)
    if not count:
        return []
    width = min(max_tokens, count)
    padded = np.concatenate([ends, np.zeros(width - 1)])
    scores = starts[:, None] * np.lib.stride_tricks.sliding_window_view(padded, width)  # (first token, length - 1)
    flat = scores.ravel()
    best = np.arange(flat.size) if flat.size <= top_k else np.argpartition(-flat, top_k - 1)[:top_k]
    best = best[np.argsort(-flat[best], kind="stable")]
    places = ((int(place // width), int(place % width), float(flat[place])) for place in best)
    return [
        Found(offset + first, offset + first + more, score) for first, more, score in places if first + more < count
    ]


def answers(context: str, text: LongText, found: Iterable[Found], top_k: int) -> list[Span]:
    """Return the best answers of all windows as characters of the context, by whole words.

    What is found twice, in two windows or as parts of the same words, keeps its better score.
    """
    best: dict[tuple[int, int], float] = {}
    for each in sorted(found, key=lambda each: -each.score):
        first, last = _whole_words(text.words, each)
        place = trimmed(context, int(text.offsets[first, 0]), int(text.offsets[last, 1]))
        best.setdefault(place, each.score)
        if len(best) == top_k:
            break
    return [Span(context[start:end], score, start, end) for (start, end), score in best.items()]


def _whole_words(words: Array, found: Found) -> tuple[int, int]:
    """Return the first token of a span's first word, and the last one of its last."""
    first = int(np.searchsorted(words, words[found.first], "left"))
    last = int(np.searchsorted(words, words[found.last], "right")) - 1
    return first, last
