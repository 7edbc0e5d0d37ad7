from __future__ import annotations

import pytest

from service.tasks.sentences import split


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Dan loves ice cream.", ["Dan loves ice cream."]),
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("It costs 3.50 dollars. Cheap!", ["It costs 3.50 dollars.", "Cheap!"]),
        ("Ask Mr. Smith. He knows.", ["Ask Mr. Smith.", "He knows."]),
        ("e.g. this one stays whole.", ["e.g. this one stays whole."]),
        ('"Come in." "Thank you."', ['"Come in."', '"Thank you."']),
        ("A title\n\nA text. And more.\n", ["A title", "A text.", "And more."]),
        ("Wait... what? Yes.", ["Wait... what?", "Yes."]),
        ("  indented", ["indented"]),
        ("", []),
        (" \n ", []),
    ],
)
def test_sentences_are_found(text: str, sentences: list[str]) -> None:
    assert [part for part in split(text)[::2] if part] == sentences


@pytest.mark.parametrize(
    "text", [" " * 200_000 + "a", "a" + " " * 200_000 + "b", "A. " * 100_000, "\n" * 200_000, '."' * 100_000]
)
def test_no_text_takes_long(text: str) -> None:
    assert "".join(split(text)) == text  # quadratic work here would take minutes


@pytest.mark.parametrize(
    "text", ["", " ", "One.  Two.\n\n Three ", "\n\na\n", "J. R. R. Tolkien. Yes.", 'He said "Go!" Then he left.']
)
def test_the_parts_joined_are_the_text(text: str) -> None:
    parts = split(text)

    assert "".join(parts) == text
    assert all(not part.strip() for part in parts[1::2])
