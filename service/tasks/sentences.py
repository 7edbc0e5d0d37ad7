"""Cutting a text into sentences, as translators learn from sentences, and putting it together again.

A new line always ends a sentence. Within a line sentencex decides, by the rules and abbreviations of the language; a
language without rules of its own takes those of one that is near to it, or of English.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, pairwise

from sentencex import segment

from model.package.words import WITHOUT_SPACES as SCRIPTS_WITHOUT_SPACES
from model.package.words import is_mark
from service.tasks.texts import MAX_MARKS

WITHOUT_SPACES = frozenset(
    {"bo", "dz", "ja", "km", "lo", "my", "th", "wuu", "yue", "zh"}
)  # between sentences and words
READ = 2_048  # characters read at a time: its rules look for the end of a quotation from each beginning of one
# For sentencex, which does not bear a full stop behind a capital and white space beyond ASCII, and does not know that
# Greek's question mark has a character of its own.
_PLAINER = str.maketrans({chr(code): " " for code in range(0x80, 0x3001) if chr(code).isspace()} | {"\u037e": ";"})
_INVISIBLE = dict.fromkeys(map(ord, "\u00ad\u2060\ufeff"))
LINES_PER_SENTENCE = 16  # without words, which are not translated
LONG = 400  # characters of a sentence that is cut at any end that there may be
# Digits and marks that others write differently: of Arabic, of Indian languages, of Chinese and Japanese.
_OF_A_LANGUAGE = re.compile(r"(?![0-9])\d|[\u060c\u061b\u061f\u06d4\u0964\u0965\u3000-\u303f\uff00-\uffef]")
# What has letters and no words if it stands alone: an address, and the line before or behind a piece of code.
# Behind an address Chinese, Japanese, Korean and their like go on without a space. Of their letters an address has only
# names in its path: behind a slash or =, where no Japanese particle begins them and no full stop ends them.
_GOING_ON = rf"{SCRIPTS_WITHOUT_SPACES}\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"
_OTHERS = rf"\s\u3000-\u303f\uff00-\uffef{_GOING_ON}"
_HOST = rf"(?i:[a-z][a-z0-9+.-]*://|www\.)[^/{_OTHERS}]*"
_NOT_OF_MAIL = rf"@,:;!?()<>{_OTHERS}"
_ADDRESS = re.compile(
    rf"{_HOST}(?:/[^{_OTHERS}]*)?[\u3001\u3002\uff00-\uffef]*"
    rf"|{_HOST}/[^{_OTHERS}]+(?<=[/=])(?![\u3040-\u309f])[{_GOING_ON}][^\s\u3000-\u303f\uff00-\uffef]*"
    rf"|[^{_NOT_OF_MAIL}]+@[^.{_NOT_OF_MAIL}]+(?:\.[^.{_NOT_OF_MAIL}]+)+[.,;:!?)]*"
    r"|(?:```|~~~)[ \t]*[A-Za-z0-9_+#.-]*"
)
_NEW_LINE = re.compile(r"[\n\r\v\f\x85\u2028\u2029]")  # those of Unicode's annex 14
# Where a line begins behind what stays: in a page also behind a tag that begins a block.
_LINE_BEGINS = re.compile(
    _NEW_LINE.pattern + r"|<(?:blockquote|br|dd|div|dt|h[1-6]|li|p|pre|section|table|td|th|tr|[ou]l)\b[^<>]*>\s*\Z",
    re.IGNORECASE,
)
# What begins a line that is quoted, a heading, or an item of a list; not 3., which may be a day: 3. Oktober.
_MARKER = re.compile(r"(?:>|(?:>|[-*+•·–—]|#{1,6}|[0-9]{1,3}\)|\[[ x]\])[ \t]+)+(?=\S)")
MAX_NAME_LENGTH = 100  # characters on either side of a mark
_OF_ADDRESSES = re.compile(r"[/@]|www\.", re.ASCII)
_NAME_BEHIND = re.compile(r"\.[A-Z]{2,}(?![a-z])")
_INK = re.compile(r"\S")
# Full stops and the like of scripts that need no white space behind them; in numbers ． may be a decimal point.
_STOPS = "。！？｡．؟۔।॥።፧։။។៕།༎"
_CLOSING = r"[\"'”’»)」』》）]*+"
# Not behind the first of Tibetan's two strokes, nor within Khmer's "and so on".
_GOES_ON = rf"[{_STOPS}]|\s*+(?:[།༎]|(?:ល|បេ)។)"
_BEHIND_STOP = rf"(?!{_GOES_ON})(?!(?<=．)\d){_CLOSING}(?P<no_gap>\s*+)(?=\S)"
_STOP = re.compile(rf"[{_STOPS}]{_BEHIND_STOP}")


def _plain_end(marks: str) -> re.Pattern[str]:
    """Return what finds ends: a stop, or one of these marks before white space, with what closes a quotation; then ink.

    It begins with the rarest of what it looks for, so that a long text without an end is passed over quickly.
    """
    spaced = rf"(?<=[{marks}]){_CLOSING}(?P<gap>[ \t]+)(?=\S)"
    return re.compile(rf"[{marks}{_STOPS}](?:{spaced}|(?<=[{_STOPS}]){_BEHIND_STOP})")


_PLAIN_END = _plain_end(".!?…")
_GREEK_END = _plain_end(".!?…;\u037e")
_STOPS_OF_THEIR_OWN = frozenset({"bo", "dz", "km"})  # languages whose stops sentencex does not know
# Where no sentence ends, whatever sentencex says, whose lists of abbreviations differ much in length: before a small
# letter, in a line that has capitals, and behind initials and some titles.
MAX_ABBREVIATION_LENGTH = 6  # characters: a word boundary, "Prof", "."
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|No|vs)\.$")
_ONE_LETTER = re.compile(r"\b[^\W\d_]\.$")
# What may be one before a small letter, of which no list has all.
_SHORT_WORD = re.compile(r"(?:^|[\W\d_])[^\W\d_]{1,3}\.$")
_GEORGIAN = re.compile(r"[\u10d0-\u10ff]")  # small letters to Python; sentences begin with no others
# Where a sentence is cut that is too long, best first: behind a stop, a mark within it, at white space, anywhere.
_MARKS_WITHOUT_GAP = "、，；：၊"
_INNER_ENDS = re.compile(rf"(?:[,;:)،؛](?P<gap>\s+)|[{_MARKS_WITHOUT_GAP}](?P<no_gap>\s*))(?=\S)")
# From its first space alone, or a long one would be read over and over.
_GAPS = re.compile(r"(?<!\s)(?P<gap>\s+)(?=\S)")


class TooManySentences(Exception):
    """A text has more sentences than are allowed."""


def split(text: str, language: str = "en", most: int | None = None) -> list[str]:
    """Return a text's parts: at even places sentences, at odd places the white space between; joined they are the text.

    A text that begins or ends with white space has an empty sentence there. The language is a code of ISO 639, as `de`.
    Raises `TooManySentences` as soon as there are more than `most`, or so many lines of numbers that they cost as much.
    """
    stripped = text.strip()
    lead = text[: len(text) - len(text.lstrip())]
    parts = ["", lead] if lead else []
    start = 0
    last = (len(stripped), len(stripped))
    left = None if most is None else room_for(most)
    for end, next_start in chain(_ends(stripped, language), [last]):
        if left is not None:
            left -= cost_of(stripped[start:end])
            if left < 0:
                raise TooManySentences
        parts += [stripped[start:end], stripped[end:next_start]]
        start = next_start
    tail = text[len(lead) + len(stripped) :]
    return [*parts[:-1], tail, ""] if tail else parts[:-1]


def room_for(most: int) -> int:
    """Return what so many sentences may cost together."""
    return most * LINES_PER_SENTENCE


def cost_of(sentence: str) -> int:
    """Return what a sentence costs: little where it has no words, as it is not translated."""
    return LINES_PER_SENTENCE if has_words(sentence) else 1


def has_words(sentence: str) -> bool:
    """Tell whether there is anything to translate in a sentence; not in a number, nor in an address alone."""
    is_of_a_language = has_letters(sentence) or _OF_A_LANGUAGE.search(sentence) is not None
    return is_of_a_language and _ADDRESS.fullmatch(sentence) is None


def has_letters(text: str) -> bool:
    """Tell whether a text has letters; a fraction, a superscript or a number in a circle is none."""
    return any(map(str.isalpha, text))


def visible(text: str) -> str:
    """Return a text without soft hyphens and the like, at which a translator that has never seen one tears words."""
    return text.translate(_INVISIBLE)


def cut(sentence: str, is_short: Callable[[int, int], bool], begin: int = 0) -> list[str]:
    """Return a sentence as `split` has parts, each of them short: in two at the best place near the middle, and so on.

    `is_short` is asked for the characters [start, end) of what was given first, of which this begins at `begin`. A
    single character is short, whatever it says.
    """
    if len(sentence) < 2 or is_short(begin, begin + len(sentence)):
        return [sentence]
    end, start = _middle(sentence)
    first, second = cut(sentence[:end], is_short, begin), cut(sentence[start:], is_short, begin + start)
    return [*first, sentence[end:start], *second]


def is_within_word(part: str, language: str) -> bool:
    """Tell whether `cut` has ended a part of a sentence in a language within a word, where nothing follows it."""
    return language not in WITHOUT_SPACES and part[-1:] not in _MARKS_WITHOUT_GAP + _STOPS


def _middle(sentence: str) -> tuple[int, int]:
    """Return where the first part of a sentence in two ends, and where the second begins."""
    middle = len(sentence) / 2
    for pattern in (_STOP, _INNER_ENDS, _GAPS):
        found = pattern.finditer(sentence, len(sentence) // 4, -(-3 * len(sentence) // 4))
        places = [match.span(match.lastgroup or "gap") for match in found]
        if places:
            return min(places, key=lambda place: abs(sum(place) / 2 - middle))
    place = half = len(sentence) // 2
    while place > max(1, half - MAX_MARKS) and is_mark(sentence[place]):  # a letter keeps its accents
        place -= 1
    return (place, place) if not is_mark(sentence[place]) else (half, half)


def without_words_kept(
    parts: Sequence[str], starts: Sequence[int], written: Callable[[str], str] = str
) -> tuple[list[str], list[int]]:
    """Return parts as `split` has them, and where they start, with sentences of no language among what stays.

    A translator that learned from sentences makes words of a number, of stars or of an address alone, and drops the
    marker of a list or of a quoted line. `written` is how such a thing is written where the parts at odd places stand.
    """
    kept, places = [""], [0]

    def keep(part: str, start: int, *, is_sentence: bool) -> None:
        if is_sentence and kept == [""]:
            kept[0], places[0] = part, start
        elif len(kept) % 2 == is_sentence:  # behind a sentence what stays, and behind that a sentence
            kept[-1] += part
        else:
            kept.append(part)
            places.append(start)

    begins_line = True
    for place, (part, start) in enumerate(zip(parts, starts, strict=True)):
        is_sentence = not place % 2 and has_words(part)
        marker = _MARKER.match(part) if is_sentence and begins_line else None
        behind = 0 if marker is None else marker.end()
        is_sentence = is_sentence and has_words(part[behind:])
        if behind and is_sentence:
            keep(written(part[:behind]), start, is_sentence=False)
            keep(part[behind:], start + behind, is_sentence=True)
        elif is_sentence:
            keep(part, start, is_sentence=True)
        else:
            keep(part if place % 2 else written(part), start, is_sentence=False)
        begins_line = _LINE_BEGINS.search(part) is not None or (begins_line and not part.strip())
    if len(kept) % 2 == 0:
        kept.append("")
        places.append(starts[-1] + len(parts[-1]))
    return kept, places


def _ends(text: str, language: str) -> Iterator[tuple[int, int]]:
    """Yield where sentences end but the last, and where the next ones begin."""
    line = 0
    while (newline := _NEW_LINE.search(text, line)) is not None:
        end = line + len(text[line : newline.start()].rstrip())
        yield from _ends_in_line(text, line, end, language)
        ink = _INK.search(text, newline.end())
        assert ink is not None, "bug: the text has white space at its end"
        line = ink.start()
        yield end, line
    yield from _ends_in_line(text, line, len(text), language)


def _ends_in_line(text: str, start: int, stop: int, language: str) -> Iterator[tuple[int, int]]:
    sentence = start
    has_capitals = any(map(str.isupper, text[start:stop]))
    for end, following in chain(_pieces(text, start, stop, language), [(stop, stop)]):
        if following < stop and not _may_end(text, sentence, end, following, has_capitals=has_capitals):
            continue
        if end - sentence > LONG or language in _STOPS_OF_THEIR_OWN:
            yield from _plain_ends(text, sentence, end, language, has_capitals=has_capitals)
        if following < stop:
            yield end, following
        sentence = following


def _is_within_a_name(text: str, end: int) -> bool:
    """Tell whether a mark that no space follows is a part of a name or of an address: ASP.NET, README.TXT."""
    before = text[max(0, end - MAX_NAME_LENGTH) : end].rsplit(maxsplit=1)[-1]
    after = text[end : end + MAX_NAME_LENGTH].split(maxsplit=1)[0]
    return _NAME_BEHIND.match(text, end - 1) is not None or _OF_ADDRESSES.search(before + after) is not None


def _may_end(text: str, sentence: int, end: int, following: int, *, has_capitals: bool) -> bool:
    if end == following and _is_within_a_name(text, end):
        return False
    last = text[max(sentence, end - MAX_ABBREVIATION_LENGTH) : end]
    if _ABBREVIATION.search(last) or _is_initial(last):
        return False
    if not text[following].islower():
        return True
    tells_nothing = not has_capitals or _GEORGIAN.match(text, following) is not None
    return tells_nothing and not _SHORT_WORD.search(last)


def _is_initial(last: str) -> bool:
    """Tell whether what stands before a place ends with a single capital, which may have accents, and a full stop."""
    letters = "".join(character for character in last if not is_mark(character))
    return _ONE_LETTER.search(letters) is not None and letters[-2].isupper()


def _plain_ends(text: str, start: int, stop: int, language: str, *, has_capitals: bool) -> Iterator[tuple[int, int]]:
    """Yield where sentences end in what sentencex leaves whole: a quotation of many of them, say."""
    sentence = start
    plain_end = _GREEK_END if language == "el" else _PLAIN_END
    for match in plain_end.finditer(text, start, stop):
        end, following = match.start(match.lastgroup or "gap"), match.end()
        if _may_end(text, sentence, end, following, has_capitals=has_capitals):
            yield end, following
            sentence = following


def _pieces(text: str, start: int, stop: int, language: str) -> Iterator[tuple[int, int]]:
    """Yield where sentencex ends a line's sentences but the last, and where the next ones begin.

    It reads some characters at a time, and those of the last sentence among them again, whose end may lie behind them.
    """
    while start < stop:
        window = min(start + READ, stop)
        segments = [found for found in segment(language, text[start:window].translate(_PLAINER)) if found]
        places = list(accumulate(map(len, segments), initial=start))
        if places[-1] != window:  # it has left something out
            places = [start, window]
        for before, place in pairwise(places[:-1]):
            body = text[before:place].rstrip()
            following = _INK.search(text, place, stop) if body else None
            if following is not None:
                yield before + len(body), following.start()
        start = window if window == stop or len(places) == 2 else places[-2]
