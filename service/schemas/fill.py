"""Missing words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from service.schemas.request import Request, Response, Text, Texts, Usage

Target = Annotated[Text, Field(min_length=1, max_length=100)]


class FillRequest(Request):
    """Texts in which words are missing."""

    inputs: ClassVar = "input"

    input: Text | Texts = Field(
        description="a text, or a list of texts; [MASK], or the model's own word for it, stands for a missing one",
        examples=["The capital of France is [MASK]."],
    )
    targets: list[Target] | None = Field(
        None,
        min_length=1,
        max_length=100,
        description="the only candidates, each a token, spelt as candidates are; scores stay those among all words",
        examples=[["Paris", "London"]],
    )
    exact_targets: bool = Field(
        False,
        description="take a target for the token that the vocabulary spells so, where it has one; else for that which "
        "the text of the target becomes, with the space before a word where the model writes one",
    )
    top_k: int | None = Field(
        None, ge=1, le=100, description="candidates to return for each missing word, best first; 5, or all targets"
    )
    truncate: bool = Field(False, description="cut texts that are too long instead of refusing them")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token of the vocabulary, and its probability."""

    id: int
    text: str
    score: float
    continues_word: bool  # that stands before it: it is a further piece, or punctuation


@dataclass(frozen=True, slots=True)
class Mask:
    """A missing word: the characters [start, end) that stand for it, and what could be in their place."""

    start: int
    end: int
    candidates: list[Candidate]


class FillResponse(Response):
    """The missing words of each text, in their order."""

    model: str
    results: list[list[Mask]]
    usage: Usage
