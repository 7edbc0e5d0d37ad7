"""What is a word in any script, as far as single characters tell."""

from __future__ import annotations

import unicodedata

# Of scripts without spaces between words, as a pattern's brackets have them: Thai, Lao, Tibetan, Burmese, Khmer; kana;
# Chinese characters.
WITHOUT_SPACES = (
    r"\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
MARK = "\u0300"  # stands for all marks and joiners where words are looked for: Python's \w knows none of them
_ZERO_WIDTH_SPACE = "\u200b"  # the only one without width that ends a word


def is_mark(character: str) -> bool:
    """Tell whether a character is a part of the letter before it, as an accent or a vowel may be."""
    return unicodedata.category(character)[0] == "M"


def marked(text: str) -> str:
    """Return a text, as long, with `MARK` in the place of all that breaks no word: marks, joiners, soft hyphens.

    That is rule WB4 of Unicode's annex 29.
    """
    return text if text.isascii() else "".join(map(_marked, text))


def _marked(character: str) -> str:
    if character == _ZERO_WIDTH_SPACE:
        return " "
    return MARK if is_mark(character) or unicodedata.category(character) == "Cf" else character
