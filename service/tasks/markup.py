"""HTML on its way through a translator: what is read of it is text, and all the rest stays as it is, to the byte.

A scanner of our own, as parsers give back a tree and not the page: tags are found as the HTML standard says (13.2.5),
in linear time. What has no end there, a comment or a tag, goes to the end of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape as unescaped

from service.tasks.sentences import LETTER, TooManySentences, split

# Their contents are no text: the standard's raw text, and what is said in no language.
RAW = frozenset({"iframe", "noembed", "noframes", "plaintext", "script", "style", "xmp"})
KEPT = RAW | {"code", "kbd", "math", "pre", "samp", "svg", "template", "textarea", "var"}
VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")
)
_TAG = re.compile(r"<(?P<end>/?)(?P<name>[a-zA-Z][^\s/>]*)")
_ATTRIBUTE = re.compile(r"[\s/]*(?P<name>=?[^\s/>=]*)(?:\s*=\s*(?P<quote>[\"']?))?")
_UNQUOTED = re.compile(r"[^\s>]*")
_LONG_NUMBER = re.compile(r"(&#[0-9]{500,})")  # of no character, and soon longer than Python reads
_LINE_BREAK = re.compile(r"(?<=\S)[ \t\f\r]*\n[ \t\n\f\r]*(?=\S)")  # which a page shows as a space
_ENDS = {name: re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE) for name in RAW}


def parts_of(page: str, language: str, most: int) -> list[str]:
    """Return a page's parts: at even places sentences, as text, at odd places what stays; raises `TooManySentences`."""
    parts: list[str] = [""]
    kept: list[str] = []
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
                if len(parts) // 2 + 1 > most + 1:
                    raise TooManySentences
    return [*parts, "".join(kept), ""] if kept else parts


def text_of(page: str, most: int) -> str:
    """Return the first characters of a page's text."""
    found, size = [], 0
    for piece, is_text in pieces(page):
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
            yield text, LETTER.search(unescape(text)) is not None
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
        return _behind(page, "-->", start + 2)
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
    """Return where an element ends that is open: with as many ends of its name as beginnings."""
    if name in RAW:
        found = _ENDS[name].search(page, place)
        return _behind(page, ">", found.end()) if found else len(page)
    depth = 1
    while depth and (place := _next_markup(page, place)) < len(page):
        tag = _TAG.match(page, place)
        if tag is None:
            place = _end_of_markup(page, place)
            continue
        other = tag["name"].lower()
        place, _ = _end_of_tag(page, tag.end())
        if other == name:
            depth += -1 if tag["end"] else int(page[place - 2 : place] != "/>")
        elif other in RAW and not tag["end"]:
            place = _end_of_element(page, other, place)
    return place


def _behind(page: str, mark: str, place: int) -> int:
    found = page.find(mark, place)
    return len(page) if found < 0 else found + len(mark)
