"""Missing words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from service.schemas.request import Request, Response, Text, Texts, Usage


class FillRequest(Request):
    """Texts in which words are missing."""

    inputs: ClassVar = "input"

    input: Text | Texts = Field(
        description="a text, or a list of texts; [MASK], or the model's own word for it, stands for a missing one",
        examples=["The capital of France is [MASK]."],
    )
    top_k: int = Field(5, ge=1, le=100, description="candidates to return for each missing word, best first")
    truncate: bool = Field(False, description="cut texts that are too long instead of refusing them")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token of the vocabulary, and its probability."""

    id: int
    text: str
    score: float


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
