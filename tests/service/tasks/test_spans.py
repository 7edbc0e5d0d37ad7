from __future__ import annotations

import numpy as np
import pytest
from transformers.pipelines.document_question_answering import select_starts_ends

from service.engine.inputs import TextInput
from service.engine.session import Array
from service.tasks.long_texts import LongText
from service.tasks.spans import Found, answers, best_spans

CONTEXT = "the dog was good and the red ball was in the old garden"
QUESTION = TextInput([2, 7, 8, 3], [0] * 4)  # CLS, two words, SEP
END = TextInput([3], [1])


def long_text(words: list[int] | None = None) -> LongText:
    """Return the context, a token a word, or with tokens of these words."""
    starts = [0, *(place + 1 for place, letter in enumerate(CONTEXT) if letter == " ")]
    offsets = np.array([(start, start + len(CONTEXT[start:].split(" ", maxsplit=1)[0])) for start in starts])
    numbers = np.arange(len(starts)) if words is None else np.array(words)
    return LongText(QUESTION, END, np.arange(10, 10 + len(starts)), 1, offsets, numbers)


def random_logits(window: range, seed: int) -> Array:
    tokens = len(QUESTION.ids) + len(window) + len(END.ids)
    logits: Array = np.random.default_rng(seed).normal(size=(tokens + 3, 2)).astype(np.float32) * 4  # three of padding
    return logits


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("top_k", "max_tokens"), [(1, 15), (5, 3), (4, 1)])
@pytest.mark.parametrize("window", [range(13), range(4, 11)])
def test_a_windows_spans_are_those_of_transformers(seed: int, top_k: int, max_tokens: int, window: range) -> None:
    logits = random_logits(window, seed)
    begin, count = len(QUESTION.ids), len(window)
    is_other = np.ones(len(logits), np.int64)
    is_other[0], is_other[begin : begin + count] = 0, 0
    attended = (np.arange(len(logits)) < begin + count + 1).astype(np.int64)
    starts, ends, scores, none = select_starts_ends(
        logits[None, :, 0],
        logits[None, :, 1],
        is_other,
        attended[None],
        top_k=top_k,
        handle_impossible_answer=True,
        max_answer_len=max_tokens,
    )

    found, ours = best_spans(logits, long_text(), window, top_k, max_tokens)

    assert ours == pytest.approx(none)
    places = [(each.first - window.start + begin, each.last - window.start + begin) for each in found]
    assert places[: len(starts)] == list(zip(starts.tolist(), ends.tolist(), strict=True))
    assert [each.score for each in found][: len(scores)] == pytest.approx(scores.tolist(), rel=1e-5)


def test_an_answer_ends_where_the_text_ends() -> None:
    window = range(10, 13)
    logits = np.full((len(QUESTION.ids) + 4, 2), -20.0)
    logits[-2] = logits[-1] = 20.0  # the text's last token, and SEP behind it

    (best, *_), none = best_spans(logits, long_text(), window, 3, 30)

    assert (best.first, best.last) == (12, 12)
    assert best.score > 0.99 and none < 0.01


def test_answers_are_whole_words_each_with_its_best_score() -> None:
    text = long_text(words=[0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])  # "dog was good" is one
    found = [Found(2, 2, 0.2), Found(1, 3, 0.3), Found(6, 7, 0.5), Found(6, 7, 0.1)]

    best = answers(CONTEXT, text, found, top_k=3)

    assert [(span.text, span.score) for span in best] == [("red ball", 0.5), ("dog was good", 0.3)]
    assert all(CONTEXT[span.start : span.end] == span.text for span in best)


def test_an_empty_text_has_no_answers() -> None:
    empty = LongText(QUESTION, END, np.arange(0), 1, np.zeros((0, 2), int), np.arange(0))

    found, none = best_spans(random_logits(range(0), 0), empty, range(0), 3, 5)

    assert (found, none) == ([], 1)
