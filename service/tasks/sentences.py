"""Cutting a text into sentences, as translators learn from sentences, and putting it together again.

A new line always ends a sentence. Within a line sentencex decides, by the rules and abbreviations of the language; a
language without rules of its own takes those of one that is near to it, or of English.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, pairwise

from sentencex import segment

WITHOUT_SPACES = frozenset(
    {"bo", "dz", "ja", "km", "lo", "my", "th", "wuu", "yue", "zh"}
)  # between sentences and words
READ = 2_048  # characters read at a time: its rules look for the end of a quotation from each beginning of one
# White space beyond ASCII, behind which and a capital sentencex does not bear a full stop; to it a space is as good.
_WIDE_SPACES = str.maketrans({chr(code): " " for code in range(0x80, 0x3001) if chr(code).isspace()})
LONG = 400  # characters of a sentence that is cut at any end that there may be
LETTER = re.compile(r"[^\W\d_]")
# Letters, and digits and marks that others write differently: of Arabic, of Indian languages, of Chinese and Japanese.
_OF_A_LANGUAGE = re.compile(
    LETTER.pattern + r"|(?![0-9])\d|[\u060c\u061b\u061f\u06d4\u0964\u0965\u3000-\u303f\uff00-\uffef]"
)
_INK = re.compile(r"\S")
# . ! ? or … and whatever closes a quotation, where white space follows, and ink. It begins with the rarest of what it
# looks for, so that a long text without an end is passed over quickly.
_PLAIN_END = re.compile(r"[.!?…][\"'”’»)]*(?P<gap>[ \t]+)(?=\S)")
# Where no sentence ends, whatever sentencex says, whose lists of abbreviations differ much in length: before a small
# letter, and behind initials and some titles.
LONGEST_ABBREVIATION = 6  # characters: a word boundary, "Prof", "."
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|No|vs|[A-Z])\.$")


class TooManySentences(Exception):
    """A text has more sentences than are allowed."""


def split(text: str, language: str = "en", most: int | None = None) -> list[str]:
    """Return a text's parts: at even places sentences, at odd places the white space between; joined they are the text.

    A text that begins or ends with white space has an empty sentence there. The language is a code of ISO 639, as `de`.
    Raises `TooManySentences` as soon as there are more than `most`.
    """
    stripped = text.strip()
    lead = text[: len(text) - len(text.lstrip())]
    parts = ["", lead] if lead else []
    start = 0
    last = (len(stripped), len(stripped))
    for count, (end, next_start) in enumerate(chain(_ends(stripped, language), [last]), start=1):
        if most is not None and count > most:
            raise TooManySentences
        parts += [stripped[start:end], stripped[end:next_start]]
        start = next_start
    tail = text[len(lead) + len(stripped) :]
    return [*parts[:-1], tail, ""] if tail else parts[:-1]


def without_words_kept(
    parts: Sequence[str], starts: Sequence[int], written: Callable[[str], str] = str
) -> tuple[list[str], list[int]]:
    """Return parts as `split` has them, and where they start, with sentences of no language among what stays.

    A translator that learned from sentences makes words of a number or of stars alone. `written` is how such a sentence
    is written where the parts at odd places stand.
    """
    kept, places = [""], [0]
    for place, (part, start) in enumerate(zip(parts, starts, strict=True)):
        has_words = not place % 2 and _OF_A_LANGUAGE.search(part) is not None
        stays = part if place % 2 else written(part)
        if has_words and len(kept) == 1:
            kept, places = [part], [start]
        elif len(kept) % 2 == has_words:  # behind a sentence what stays, and behind that a sentence
            kept[-1] += stays
        else:
            kept.append(part if has_words else stays)
            places.append(start)
    if len(kept) % 2 == 0:
        kept.append("")
        places.append(starts[-1] + len(parts[-1]))
    return kept, places


def _ends(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Yield where sentences end but the last, and where the next ones begin."""
    line = 0
    while (newline := text.find("\n", line)) >= 0:
        end = line + len(text[line:newline].rstrip())
        yield from _ends_in_line(text, line, end, language)
        ink = _INK.search(text, newline)
        assert ink is not None, "bug: the text has white space at its end"
        line = ink.start()
        yield end, line
    yield from _ends_in_line(text, line, len(text), language)


def _ends_in_line(text: str, start: int, stop: int, language: str) -> Iterator[tuple[int, int]]:
    sentence = start
    for end, following in chain(_pieces(text, start, stop, language), [(stop, stop)]):
        if following < stop and not _may_end(text, sentence, end, following):
            continue
        if end - sentence > LONG:
            yield from _plain_ends(text, sentence, end)
        if following < stop:
            yield end, following
        sentence = following


def _may_end(text: str, sentence: int, end: int, following: int) -> bool:
    is_abbreviation = _ABBREVIATION.search(text[max(sentence, end - LONGEST_ABBREVIATION) : end])
    return not is_abbreviation and not text[following].islower()


def _plain_ends(text: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Yield where sentences end in what sentencex leaves whole: a quotation of many of them, say."""
    sentence = start
    for match in _PLAIN_END.finditer(text, start, stop):
        if _may_end(text, sentence, match.start("gap"), match.end()):
            yield match.start("gap"), match.end()
            sentence = match.end()


def _pieces(text: str, start: int, stop: int, language: str) -> Iterator[tuple[int, int]]:
    """Yield where sentencex ends a line's sentences but the last, and where the next ones begin.

    It reads some characters at a time, and those of the last sentence among them again, whose end may lie behind them.
    """
    while start < stop:
        window = min(start + READ, stop)
        segments = [found for found in segment(language, text[start:window].translate(_WIDE_SPACES)) if found]
        places = list(accumulate(map(len, segments), initial=start))
        if places[-1] != window:  # it has left something out
            places = [start, window]
        for before, place in pairwise(places[:-1]):
            body = text[before:place].rstrip()
            following = _INK.search(text, place, stop) if body else None
            if following is not None:
                yield before + len(body), following.start()
        start = window if window == stop or len(places) == 2 else places[-2]
