"""Cutting a text into sentences, as translators learn from sentences, and putting it together again."""

from __future__ import annotations

import re

# A sentence ends behind . ! ? or … and whatever closes a quotation, where white space and no small letter follow; a
# new line always ends one. So "3.5" and "e.g. this" stay whole, and so do the abbreviations below.
_END = re.compile(r"(?<=[.!?…])[\"'”’»)]*(?P<gap>[ \t]+)(?=[^\sa-zà-öø-ÿ])|(?<!\s)(?P<lines>\s*\n\s*)")
LONGEST_ABBREVIATION = 6  # characters: a word boundary, "Prof", "."
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|No|vs|[A-Z])\.$")


def split(text: str) -> list[str]:
    """Return a text's parts: at even places sentences, at odd places the white space between; joined they are the text.

    A text that begins or ends with white space has an empty sentence there.
    """
    stripped = text.strip()
    lead = text[: len(text) - len(text.lstrip())]
    parts = ["", lead] if lead else []
    start = 0
    for match in _END.finditer(stripped):
        gap = match.group("gap") or match.group("lines")
        end = match.end() - len(gap)
        if match.group("gap") and _ABBREVIATION.search(stripped[max(start, end - LONGEST_ABBREVIATION) : end]):
            continue
        parts += [stripped[start:end], gap]
        start = match.end()
    parts.append(stripped[start:])
    tail = text[len(lead) + len(stripped) :]
    return [*parts, tail, ""] if tail else parts
