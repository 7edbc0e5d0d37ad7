from __future__ import annotations

import numpy as np
import pytest

from service.schemas.translate import WordPair
from service.tasks.explaining.alignment import by_attention, by_vectors, word_pairs
from service.tasks.explaining.tokens import words_of, words_of_tokens

SOURCE = np.eye(4)


def test_vectors_that_are_each_others_nearest_correspond_in_whatever_order() -> None:
    assert sorted(by_vectors(SOURCE, SOURCE[[0, 2, 1]] + 0.1)) == [(0, 0), (1, 2), (2, 1)]


def test_of_alike_vectors_those_at_like_places_correspond() -> None:
    twice = np.array([[1.0, 0], [0, 1.0], [1.0, 0]])

    assert sorted(by_vectors(twice, twice)) == [(0, 0), (1, 1), (2, 2)]


def test_a_source_token_that_all_look_at_corresponds_to_none_but_who_looks_most() -> None:
    weights = np.array([[0.30, 0.10, 0.60], [0.05, 0.35, 0.60], [0.02, 0.02, 0.96]])

    assert sorted(by_attention(weights)) == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't go, Jean-Luc!", ["Don't", "go", ",", "Jean-Luc", "!"]),
        ("Il n’a rien.", ["Il", "n’a", "rien", "."]),
        ("नमस्ते दुनिया।", ["नमस्ते", "दुनिया", "।"]),
        ("cafe\u0301 noir", ["cafe\u0301", "noir"]),
        ("می\u200cخواهم rot\u00adgrün", ["می\u200cخواهم", "rot\u00adgrün"]),
        ("क्\u200dष 👍\ufe0f", ["क्\u200dष", "👍\ufe0f"]),
        ("\ufeffone\u200btwo \u2060", ["one", "two"]),
        ("", []),
    ],
)
def test_words_have_their_apostrophes_and_hyphens(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in words_of(text)] == words


def test_without_spaces_characters_are_words() -> None:
    assert words_of("你好 吗", with_spaces=False) == [(0, 1), (1, 2), (3, 4)]


def test_links_of_tokens_become_pairs_of_words_once_each() -> None:
    source, target = "ice cream", "glass"
    tokens = [(0, 2), (2, 3), (3, 9)]  # the last begins with its space
    words = words_of(source)
    of_tokens = words_of_tokens(tokens, source, words)

    assert of_tokens == [0, 0, 1]
    pairs = word_pairs([(0, 0), (1, 0), (2, 0)], (of_tokens, words), ([0], words_of(target)))
    assert pairs == [WordPair((0, 3), (0, 5)), WordPair((4, 9), (0, 5))]
