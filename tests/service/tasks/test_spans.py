from __future__ import annotations

import numpy as np
import pytest
from transformers.pipelines.document_question_answering import select_starts_ends

from service.engine.arrays import Array
from service.engine.inputs import TextInput
from service.tasks import spans
from service.tasks.entities import trimmed
from service.tasks.long_texts import LongText
from service.tasks.spans import Spans, answers, best_spans

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


def test_a_start_that_cannot_be_has_no_span_behind_the_end() -> None:
    window = range(13)
    logits = np.zeros((len(QUESTION.ids) + len(window) + len(END.ids), 2), np.float32)
    logits[len(QUESTION.ids), 0] = 800  # beside it all others are zero, in 64 bits too

    found, _ = best_spans(logits, long_text(), window, 100, 5)
    assert found.lasts.max() < len(window)


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
    shift, first = begin - window.start, slice(len(starts))
    np.testing.assert_array_equal(found.firsts[first] + shift, starts)
    np.testing.assert_array_equal(found.lasts[first] + shift, ends)
    assert found.scores[first].tolist() == pytest.approx(scores.tolist(), rel=1e-5)
    assert len(found.scores) == min(top_k, len(found.scores)) > 0


def test_an_answer_ends_where_the_text_ends() -> None:
    window = range(10, 13)
    logits = np.full((len(QUESTION.ids) + 4, 2), -20.0)
    logits[-2] = logits[-1] = 20.0  # the text's last token, and SEP behind it

    found, none = best_spans(logits, long_text(), window, 9, 30)

    assert (found.firsts[0], found.lasts[0]) == (12, 12) and found.scores[0] > 0.99 and none < 0.01
    assert found.lasts.max() == 12 and len(found.scores) == 6  # of three tokens


def test_answers_are_whole_words_each_with_its_best_score() -> None:
    text = long_text(words=[0, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])  # "dog was good" is one
    one = Spans(np.array([6, 2]), np.array([7, 2]), np.array([0.1, 0.2]))
    other = Spans(np.array([6, 1]), np.array([7, 3]), np.array([0.5, 0.3]))

    best = answers(CONTEXT, text, [one, other], top_k=3)

    assert [(span.text, span.score) for span in best] == [("red ball", 0.5), ("dog was good", 0.3)]
    assert all(CONTEXT[span.start : span.end] == span.text for span in best)


def test_a_word_without_end_is_read_but_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []

    def watched(text: str, start: int, end: int, bound: int) -> tuple[int, int]:
        read.append((start, end))
        return trimmed(text, start, end, bound)

    monkeypatch.setattr(spans, "trimmed", watched)
    text = LongText(QUESTION, END, np.arange(50), 1, np.stack([np.arange(50), np.arange(1, 51)], -1), np.zeros(50, int))
    each = Spans(np.arange(50), np.arange(50), np.linspace(1, 0.5, 50))

    (best,) = answers("x" * 50, text, [each], top_k=10)

    assert (best.start, best.end, best.score) == (0, 50, 1) and read == [(0, 50)]


def test_an_empty_text_has_no_answers() -> None:
    empty = LongText(QUESTION, END, np.arange(0), 1, np.zeros((0, 2), int), np.arange(0))

    found, none = best_spans(random_logits(range(0), 0), empty, range(0), 3, 5)

    assert (len(found.scores), none) == (0, 1)
    assert answers("", empty, [found], top_k=3) == []


def test_white_space_is_no_answer_though_it_is_a_token() -> None:
    context, offsets = "a\n\nb", np.array([(0, 1), (1, 2), (2, 3), (3, 4)])
    text = LongText(QUESTION, END, np.arange(10, 14), 1, offsets, np.arange(4))
    found = Spans(np.array([1, 1, 0]), np.array([1, 2, 0]), np.array([0.5, 0.4, 0.1]))

    assert [span.text for span in answers(context, text, [found], 3)] == ["a"]
