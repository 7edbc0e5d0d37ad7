"""HTML on its way through a translator: what is read of it is text, and all the rest stays as it is, to the byte.

A scanner of our own, as parsers give back a tree and not the page: tags are found as the HTML standard says (13.2.5),
in linear time. What has no end there, a comment or a tag, goes to the end of the page.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import unescape as unescaped

from service.tasks.sentences import TooManySentences, cost_of, has_letters, room_for, split

SCANNED = 200_000  # characters of a page in which its first text is looked for: 0.1 s where they are nothing but tags
# Their contents are no text: the standard's raw text, and what is said in no language.
RAW = frozenset({"iframe", "noembed", "noframes", "plaintext", "script", "style", "xmp"})
KEPT = RAW | {"code", "kbd", "math", "pre", "samp", "svg", "template", "textarea", "var"}
VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")
)
# Elements that may end without a tag of their own (13.1.2.4): what begins another ends each, and so does its parent's
# end. Within others that are open inside them nothing does.
_ENDING_P = frozenset(
    re.findall(
        r"\w+",
        "address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption figure "
        "footer form h1 h2 h3 h4 h5 h6 header hgroup hr li main menu nav ol p pre search section summary "
        "table ul ",
    )
)
_SCOPES = (_ENDING_P | KEPT | {"body", "button", "html", "ruby", "select"}) - RAW - {"dd", "dt", "hr", "li", "p"}
_ROWS = frozenset(("tbody", "tfoot", "thead"))
_CELLS = frozenset(("td", "th"))
_ENDED_BY = {
    "p": _ENDING_P,
    "li": {"li"},
    **{name: {"dd", "dt"} for name in ("dd", "dt")},
    **dict.fromkeys(_CELLS, _CELLS | _ROWS | {"tr"}),
    "tr": _ROWS | {"tr"},
    **dict.fromkeys(_ROWS, _ROWS),
    "option": {"optgroup", "option"},
    "optgroup": {"optgroup"},
    **{name: {"rp", "rt"} for name in ("rp", "rt")},
}
_TAG = re.compile(r"<(?P<end>/?)(?P<name>[a-zA-Z][^\s/>]*)")
_END_OF_COMMENT = re.compile("-->|(?<!<!)--!>")
_ATTRIBUTE = re.compile(r"[\s/]*(?P<name>=?[^\s/>=]*)(?:\s*=\s*(?P<quote>[\"']?))?")
_UNQUOTED = re.compile(r"[^\s>]*")
_LONG_NUMBER = re.compile(r"(&#[0-9]{500,})")  # of no character, and soon longer than Python reads
_LINE_BREAK = re.compile(r"(?<=\S)[ \t]*[\n\f\r][ \t\n\f\r]*(?=\S)")  # which a page shows as a space
_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in RAW}


def parts_of(page: str, language: str, most: int) -> list[str]:
    """Return a page's parts: at even places sentences, as text, at odd places what stays; raises `TooManySentences`."""
    parts: list[str] = [""]
    kept: list[str] = []
    left = room_for(most)
    for piece, is_text in pieces(page):
        if not is_text:
            kept.append(piece)
            continue
        for place, part in enumerate(split(_LINE_BREAK.sub(" ", unescape(piece)), language, most)):
            if place % 2:
                kept.append(part)
            elif part:
                if kept or parts[-1]:
                    parts += ["".join(kept), part]
                    kept = []
                else:
                    parts[-1] = part
                left -= cost_of(part)
                if left < 0:
                    raise TooManySentences
    return [*parts, "".join(kept), ""] if kept else parts


def text_of(page: str, most: int) -> str:
    """Return the first characters of a page's text, as far as it begins within `SCANNED` characters."""
    found, size = [], 0
    for piece, is_text in pieces(page[:SCANNED]):
        if is_text:
            found.append(unescape(piece))
            size += len(found[-1])
        if size >= most:
            break
    return " ".join(found)[:most]


def pieces(page: str) -> Iterator[tuple[str, bool]]:
    """Yield a page piece by piece, and whether each is text to translate; joined they are the page."""
    place = 0
    while place < len(page):
        start = _next_markup(page, place)
        text = page[place:start]
        if text:
            yield text, has_letters(unescape(text))
        place = _end_of_markup(page, start)
        if place > start:
            yield page[start:place], False


def unescape(text: str) -> str:
    """Return a text with characters in the place of their names and numbers; numbers too long for any stay."""
    parts = _LONG_NUMBER.split(text)
    return "".join(part if place % 2 else unescaped(part) for place, part in enumerate(parts))


def _next_markup(page: str, place: int) -> int:
    """Return where the next tag or comment begins: a < alone is text."""
    while (place := page.find("<", place)) >= 0:
        if page[place + 1 : place + 2] in {"!", "?", "/"} or _TAG.match(page, place):
            return place
        place += 1
    return len(page)


def _end_of_markup(page: str, start: int) -> int:
    """Return where a comment ends, or a tag, with its element if that stays as it is."""
    if page.startswith("<!--", start):
        found = _END_OF_COMMENT.search(page, start + 2)
        return found.end() if found else len(page)
    tag = _TAG.match(page, start)
    if tag is None:  # what browsers take for a comment
        return _behind(page, ">", start)
    end, stays = _end_of_tag(page, tag.end())
    name = tag["name"].lower()
    if tag["end"] or page[end - 2 : end] == "/>" or name in VOID or not (stays or name in KEPT):
        return end
    return _end_of_element(page, name, end)


def _end_of_tag(page: str, place: int) -> tuple[int, bool]:
    """Return where a tag ends whose name is read, and whether it says that its element is not to be translated."""
    stays = False
    while place < len(page) and page[place] != ">":
        attribute = _ATTRIBUTE.match(page, place)
        assert attribute is not None, "bug: nothing is an attribute, too"
        place = value = attribute.end()
        if attribute["quote"]:
            place = _behind(page, attribute["quote"], value)
            value_end = place - 1
        else:
            value_end = place
            if attribute["quote"] is not None:
                value_end = place = _UNQUOTED.match(page, value).end()  # type: ignore[union-attr]  # matches nothing, too
        match attribute["name"].lower():
            case "translate":
                stays = stays or page[value:value_end].strip().lower() == "no"
            case "class":
                stays = stays or "notranslate" in page[value:value_end].split()
    return min(place + 1, len(page)), stays


def _end_of_element(page: str, name: str, place: int) -> int:
    """Return where an element ends that is open: with as many ends of its name as beginnings, or where it must."""
    if name in RAW:
        found = _ENDS[name].search(page, place)
        return _behind(page, ">", found.end()) if found else len(page)
    inside = _Inside(name)
    while (place := _next_markup(page, place)) < len(page):
        tag = _TAG.match(page, place)
        if tag is None:
            place = _end_of_markup(page, place)
            continue
        start, other = place, tag["name"].lower()
        place, _ = _end_of_tag(page, tag.end())
        if tag["end"]:
            if inside.is_ended_by_end_of(other):
                return place if other == name else start
        elif inside.is_ended_by(other):
            return start
        elif other in RAW:
            place = _end_of_element(page, other, place)
        elif page[place - 2 : place] != "/>":
            inside.begin(other)
    return len(page)


class _Inside:
    """The elements that are open inside another, as far as they tell where that ends."""

    def __init__(self, name: str) -> None:
        self._ended_by = _ENDED_BY.get(name, frozenset())
        self._counted = _SCOPES.union(_ENDED_BY) if self._ended_by else {name}
        self._open: list[str] = []
        self._count = Counter[str]()
        self._scopes = 0

    def begin(self, name: str) -> None:
        """Take a beginning."""
        if name in self._counted:
            self._open.append(name)
            self._count[name] += 1
            self._scopes += name in _SCOPES

    def is_ended_by(self, name: str) -> bool:
        """Tell whether what begins here stands behind the element, which has no end of its own."""
        return name in self._ended_by and not self._scopes

    def is_ended_by_end_of(self, name: str) -> bool:
        """Take an end; tell whether it is the element's, or its parent's."""
        if name not in self._counted:
            return False
        if not self._count[name]:
            return True
        while True:
            last = self._open.pop()
            self._count[last] -= 1
            self._scopes -= last in _SCOPES
            if last == name:
                return False


def _behind(page: str, mark: str, place: int) -> int:
    found = page.find(mark, place)
    return len(page) if found < 0 else found + len(mark)
