"""Log probabilities of tokens, as chats and responses have them."""

from __future__ import annotations

from functools import lru_cache

from typing_extensions import TypedDict

from service.schemas import TokenLogprob
from service.turns import Turn

UNFINISHED = "\ufffd"  # stands for bytes that are no whole character


class TopLogprob(TypedDict):
    """One of the likeliest tokens at some place."""

    # Of plain values only, or the garbage collector would look at each: see `service.schemas.TopLogprob`.
    token: str
    logprob: float
    bytes: tuple[int, ...] | None  # in UTF-8; none of a part of a character whose bytes are not known


class ScoredToken(TopLogprob):
    """A token of a text, and the likeliest in its place."""

    top_logprobs: list[TopLogprob]


async def logprobs_of(tokens: list[TokenLogprob], turn: Turn) -> list[ScoredToken]:
    """Return a text's tokens with their log probabilities."""
    found: list[ScoredToken] = []
    for token in tokens:
        assert token.logprob is not None, "bug: without echo there is no first token"
        top = [_with_logprob(other["text"], other["logprob"], other.get("bytes")) for other in token.top]
        found.append({**_with_logprob(token.text, token.logprob, token.bytes), "top_logprobs": top})
        await turn.give()
    return found


def _with_logprob(text: str, logprob: float, part: tuple[int, ...] | None) -> TopLogprob:
    return {
        "token": text,
        "logprob": logprob,
        "bytes": _utf8(text) if part is None else part,
    }


@lru_cache(maxsize=4096)  # or the garbage collector would look at 60,000 new tuples of one answer
def _utf8(text: str) -> tuple[int, ...] | None:
    return None if UNFINISHED in text else tuple(text.encode())
