"""Cutting a text into sentences, as translators learn from sentences, and putting it together again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

# A sentence ends behind . ! ? or … and whatever closes a quotation, where white space and no small letter follow; a
# new line always ends one. So "3.5" and "e.g. this" stay whole, and so do the abbreviations below. The pattern begins
# with the rarest of what it looks for, so that a long text without an end is passed over quickly.
_END = re.compile(r"[.!?…][\"'”’»)]*(?P<gap>[ \t]+)(?=[^\sa-zà-öø-ÿ])")
_INK = re.compile(r"\S")
LONGEST_ABBREVIATION = 6  # characters: a word boundary, "Prof", "."
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|No|vs|[A-Z])\.$")


class TooManySentences(Exception):
    """A text has more sentences than are allowed."""


def split(text: str, most: int | None = None) -> list[str]:
    """Return a text's parts: at even places sentences, at odd places the white space between; joined they are the text.

    A text that begins or ends with white space has an empty sentence there. Raises `TooManySentences` as soon as there
    are more than `most`.
    """
    stripped = text.strip()
    lead = text[: len(text) - len(text.lstrip())]
    parts = ["", lead] if lead else []
    start = 0
    last = (len(stripped), len(stripped))
    for count, (end, next_start) in enumerate(chain(_ends(stripped), [last]), start=1):
        if most is not None and count > most:
            raise TooManySentences
        parts += [stripped[start:end], stripped[end:next_start]]
        start = next_start
    tail = text[len(lead) + len(stripped) :]
    return [*parts[:-1], tail, ""] if tail else parts[:-1]


def _ends(text: str) -> Iterator[tuple[int, int]]:
    """Yield where sentences end but the last, and where the next ones begin."""
    line = 0
    while (newline := text.find("\n", line)) >= 0:
        end = line + len(text[line:newline].rstrip())
        yield from _ends_in_line(text, line, end)
        ink = _INK.search(text, newline)
        assert ink is not None, "bug: the text has white space at its end"
        line = ink.start()
        yield end, line
    yield from _ends_in_line(text, line, len(text))


def _ends_in_line(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    sentence = start
    for match in _END.finditer(text, start, stop):
        end = match.start("gap")
        if not _ABBREVIATION.search(text[max(sentence, end - LONGEST_ABBREVIATION) : end]):
            yield end, match.end()
            sentence = match.end()
