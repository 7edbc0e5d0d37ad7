"""Questions about a text, answered with probabilities."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field

from service.schemas.request import Request, Response, Text, Texts, Usage

# How a model answers: by what follows from the text, by its own labels, by how well the text fits an answer, or by how
# likely it is to write the answer.
Way = Literal["entailment", "labels", "relevance", "likelihood"]
MAX_QUESTIONS, MAX_OPTIONS = 400, 255
MAX_ALL_OPTIONS = 4096  # of all questions together


class Option(BaseModel):
    """One of the answers that a question allows."""

    text: Annotated[Text, Field(min_length=1)] = Field(description="the answer in words, as a model is asked of it")
    names: Texts = Field(description="what a classifier's label may be called that means it")


class Question(BaseModel):
    """A question and its possible answers; a single one is a statement, which is true or not."""

    instructions: Text = Field("", description="the question in words")
    options: Annotated[list[Option], Field(min_length=1, max_length=MAX_OPTIONS, fail_fast=True)]


class DecideRequest(Request):
    """Questions about one text."""

    inputs: ClassVar = "questions"

    input: Text
    questions: Annotated[list[Question], Field(min_length=1, max_length=MAX_QUESTIONS, fail_fast=True)]
    truncate: bool = Field(False, description="cut a text that is too long instead of refusing it")

    def count_inputs(self) -> int:
        """Return that it asks for one answer: how much each question asks for is for the model to say."""
        return 1


class DecideResponse(Response):
    """The probability of each option of each question, 1 in sum, or of a statement; none of what it cannot answer."""

    model: str
    results: list[list[float] | None]
    usage: Usage
