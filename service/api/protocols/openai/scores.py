"""Log probabilities of tokens, as this protocol's newer routes have them."""

from __future__ import annotations

from typing_extensions import TypedDict

from service.schemas import TokenLogprob
from service.turns import Turn

UNFINISHED = "\ufffd"  # stands for bytes that are no whole character


class TopScore(TypedDict):
    """One of the likeliest tokens at some place."""

    # Of plain values only, or the garbage collector would look at each: see `service.schemas.TopLogprob`.
    token: str
    logprob: float
    bytes: tuple[int, ...] | None  # in UTF-8, unless it is no whole characters


class TokenScore(TopScore):
    """A token of a text, and the likeliest in its place."""

    top_logprobs: list[TopScore]


async def scores_of(tokens: list[TokenLogprob], turn: Turn) -> list[TokenScore]:
    """Return a text's tokens with their log probabilities."""
    scores: list[TokenScore] = []
    for token in tokens:
        assert token.logprob is not None, "bug: without echo there is no first token"
        top = [_scored(other["text"], other["logprob"]) for other in token.top]
        scores.append({**_scored(token.text, token.logprob), "top_logprobs": top})
        await turn.give()
    return scores


def _scored(text: str, logprob: float) -> TopScore:
    return {
        "token": text,
        "logprob": logprob,
        "bytes": None if UNFINISHED in text else tuple(text.encode()),
    }
