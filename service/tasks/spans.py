"""The best answers in a text, by how likely each token is the first and the last of one (Devlin et al. 2019, 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.engine.arrays import Array
from service.schemas import Span
from service.tasks.entities import trimmed
from service.tasks.long_texts import LongText
from service.tasks.scores import softmax


@dataclass(frozen=True, eq=False)
class Spans:
    """Tokens `firsts` to `lasts` (N,) of a text as answers, and their scores, 0 to 1."""

    firsts: Array
    lasts: Array
    scores: Array


def best_spans(logits: Array, text: LongText, window: range, count: int, max_tokens: int) -> tuple[Spans, float]:
    """Return a window's likeliest spans, and how likely it holds none, of logits (T, 2) of first and last tokens.

    A span's score is the probability of its first token times that of its last. Of what is not the text's only the
    window's first token, CLS, can be meant: it stands for there being no answer.
    """
    begin = len(text.before.ids)
    real = np.concatenate([logits[:1], logits[begin : begin + len(window)]])  # CLS, and the text's
    starts, ends = softmax(real[:, 0]), softmax(real[:, 1])
    spans = _likeliest(starts[1:], ends[1:], count, max_tokens)
    none = float(starts[0] * ends[0])
    return Spans(spans.firsts + window.start, spans.lasts + window.start, spans.scores), none


def _likeliest(starts: Array, ends: Array, count: int, max_tokens: int) -> Spans:
    """Return the spans with the highest products of starts (T,) and ends (T,), best first."""
    width = min(max_tokens, len(starts))
    if not width:
        return Spans(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    # By first token and length; behind the text's end no span ends.
    padded = np.concatenate([ends, np.full(width - 1, -1.0)])
    scores = (starts[:, None] * np.lib.stride_tricks.sliding_window_view(padded, width)).ravel()
    best = np.arange(scores.size) if scores.size <= count else np.argpartition(-scores, count - 1)[:count]
    best = best[np.argsort(-scores[best], kind="stable")]
    best = best[best // width + best % width < len(starts)]  # a start of probability 0 makes 0 of the -1, too
    return Spans(best // width, best // width + best % width, scores[best])


def answers(context: str, text: LongText, windows: Sequence[Spans], top_k: int) -> list[Span]:
    """Return the best spans of all windows as characters of the context, by whole words.

    What is found twice, in two windows or as parts of the same words, keeps its better score.
    """
    firsts, lasts, scores = (
        np.concatenate([getattr(spans, field) for spans in windows]) for field in ("firsts", "lasts", "scores")
    )
    best: dict[tuple[int, int], float] = {}
    found: set[tuple[int, int]] = set()  # read once each: words may be as long as a text, and hold all spans
    for place in np.argsort(-scores, kind="stable").tolist():
        first, last = words = _whole_words(text.words, int(firsts[place]), int(lasts[place]))
        if words in found:  # by a better span
            continue
        found.add(words)
        bound = int(text.offsets[last + 1, 0]) if last + 1 < len(text.offsets) else len(context)
        start, end = trimmed(context, int(text.offsets[first, 0]), int(text.offsets[last, 1]), bound)
        if not context[start:end].strip():  # some tokenizers have tokens of nothing but white space
            continue
        best.setdefault((start, end), float(scores[place]))
        if len(best) == top_k:
            break
    return [Span(context[start:end], score, start, end) for (start, end), score in best.items()]


def _whole_words(words: Array, first: int, last: int) -> tuple[int, int]:
    """Return the first token of a span's first word, and the last one of its last."""
    return int(np.searchsorted(words, words[first], "left")), int(np.searchsorted(words, words[last], "right")) - 1
