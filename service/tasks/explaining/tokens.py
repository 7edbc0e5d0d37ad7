"""Tokens of texts and of outputs, and their words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from model.package import Detokenizer, PackageTokenizer
from model.package.tokenizer import Encoding
from model.package.words import MARK, marked
from service.schemas.explain import ExplainedToken

_LETTERS = rf"\w[\w{MARK}]*"
# With its apostrophes and hyphens; any other sign is a word, too.
_WORD = re.compile(rf"{_LETTERS}(?:[’'-]{_LETTERS})*|[^\w\s{MARK}]{MARK}*")
_CHARACTER = re.compile(rf"[^\s{MARK}]{MARK}*")

Span = tuple[int, int]


def tokens_of_text(encoding: Encoding) -> list[ExplainedToken]:
    """Return a text's tokens with their characters."""
    rows = zip(encoding.ids, encoding.tokens, encoding.offsets, encoding.special, encoding.texts, strict=True)
    return [
        ExplainedToken(id=i, token=token, start=start, end=end, special=special, part=part or 0)
        for i, token, (start, end), special, part in rows
    ]


def added_token(tokenizer: PackageTokenizer, token: int) -> ExplainedToken:
    """Return a token that stands for none of a text's characters."""
    return ExplainedToken(id=token, token=tokenizer.token_if_any(token) or "", start=0, end=0, special=True, part=0)


def tokens_of_output(
    tokenizer: PackageTokenizer, ids: Sequence[int], before: Sequence[int] = ()
) -> tuple[str, list[ExplainedToken]]:
    """Return an output's text, and its tokens with their characters in it; `before` are the ids that it continues.

    A character of several tokens belongs to the last of them.
    """
    detokenizer, text, tokens = Detokenizer(tokenizer, before), "", []
    for place, token in enumerate(ids):
        piece = detokenizer.add([token], is_last=place == len(ids) - 1)
        is_special = not tokenizer.text_behind[token]
        start, text = len(text), text + piece
        tokens.append(
            ExplainedToken(
                id=token,
                token=tokenizer.token_if_any(token) or "",  # a model may have more than its tokenizer knows
                start=start,
                end=len(text),
                special=is_special,
                part=0,
            )
        )
    return text, tokens


def words_of(text: str, *, with_spaces: bool = True) -> list[Span]:
    """Return the words of a text as characters [start, end); of a language without spaces its characters are words."""
    return [found.span() for found in (_WORD if with_spaces else _CHARACTER).finditer(marked(text))]


def words_of_tokens(tokens: Sequence[Span], text: str, words: Sequence[Span]) -> list[int | None]:
    """Return of each token the first word that it has ink of."""
    found: list[int | None] = []
    for start, end in tokens:
        ink = end - len(text[start:end].lstrip())
        found.append(next((place for place, word in enumerate(words) if word[0] < end and ink < word[1]), None))
    return found
