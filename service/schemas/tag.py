"""Tagging: the entities of a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import Field

from model.package import Aggregation
from service.schemas.request import OVERLAP, Request, Response, Text, Texts, Usage


class TagRequest(Request):
    """Texts to tag, of any length."""

    inputs: ClassVar = "input"

    input: Text | Texts = Field(
        description="a text, or a list of texts", examples=["Angela Merkel was born in Hamburg."]
    )
    aggregation: Aggregation | None = Field(
        None,
        description="none: every token; simple: neighbours of one kind; first, average, max: the same by whole words, "
        "each tagged by its first token, by the mean of all, or by the surest; the model's own choice if left out",
    )
    ignore_labels: Texts = Field(["O"], max_length=256, description="labels of tokens, or of entities, to leave out")
    overlap: int | None = OVERLAP


@dataclass(frozen=True, slots=True)
class Entity:
    """Characters [start, end) of a text, their label and its score, 0 to 1: the mean over what it is made of."""

    label: str
    score: float
    start: int
    end: int
    text: str


class TagResponse(Response):
    """The entities of each text, in their order."""

    model: str
    results: list[list[Entity]]
    usage: Usage
