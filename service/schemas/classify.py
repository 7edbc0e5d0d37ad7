"""Classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from service.schemas.request import Request, Response, Text, Texts, Usage

Pair = tuple[Text, Text]
Pairs = Annotated[list[Pair], Field(fail_fast=True)]


class ClassifyRequest(Request):
    """Texts or images to classify."""

    inputs: ClassVar = "input"

    input: Text | Texts | Pairs = Field(
        description="a text, or a list of texts, or a list of pairs [a, b]; for a model of images, each image's bytes "
        "in base64, or as a data URL",
        examples=["What a wonderful film!"],
    )
    top_k: int | None = Field(None, ge=1, description="labels to return, best first; all if left out")
    truncate: bool = Field(False, description="cut texts that are too long instead of refusing them")


@dataclass(frozen=True, slots=True)
class Label:
    """A label and its score, 0 to 1; the scores of all labels sum to 1."""

    label: str
    score: float


class Classification(Response):
    """The labels of one input, best first."""

    labels: list[Label]


class ClassifyResponse(Response):
    """One classification for each input."""

    model: str
    results: list[Classification]
    usage: Usage
