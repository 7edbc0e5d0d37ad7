"""Answers found in texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from service.schemas.request import OVERLAP, Request, Response, Text, Texts, Usage


class AnswerRequest(Request):
    """A question about a text, or several; a single one of either goes with all of the other."""

    inputs: ClassVar = "context"

    question: Text | Texts = Field(description="a question, or one for each context", examples=["Where was she born?"])
    context: Text | Texts = Field(
        description="the text, of any length, that holds the answer; or one for each question",
        examples=["Angela Merkel was born in Hamburg."],
    )
    top_k: int = Field(1, ge=1, le=100, description="answers to return for each question, best first")
    max_answer_tokens: int = Field(30, ge=1, le=512, description="how long an answer may be")
    no_answer: bool = Field(False, description="whether 'there is none' is an answer, too: an empty one")
    overlap: int | None = OVERLAP

    def counted_by(self) -> str:
        """Return the field that says how many answers it asks for: the longer list."""
        questions, contexts = (1 if isinstance(texts, str) else len(texts) for texts in (self.question, self.context))
        return "question" if questions > contexts else self.inputs

    def count_inputs(self) -> int:
        """Return how many questions are to be answered."""
        return max(1 if isinstance(texts, str) else len(texts) for texts in (self.question, self.context))


@dataclass(frozen=True, slots=True)
class Span:
    """Characters [start, end) of a context, and their score as an answer, 0 to 1."""

    text: str
    score: float
    start: int
    end: int


class Answers(Response):
    """The answers to one question, best first, and the score of there being none."""

    answers: list[Span]
    no_answer_score: float


class AnswerResponse(Response):
    """The answers to each question."""

    model: str
    results: list[Answers]
    usage: Usage
