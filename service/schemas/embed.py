"""Embedding."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from service.schemas.request import Request, Response, Text, Texts, Usage


class EmbedRequest(Request):
    """Texts to map to vectors."""

    inputs: ClassVar = "input"

    input: Text | Texts = Field(description="a text, or a list of texts", examples=["A man is playing a guitar."])
    truncate: bool = Field(False, description="cut texts that are too long instead of refusing them")


class EmbedResponse(Response):
    """A vector of length 1 for each text: their products are cosines."""

    model: str
    embeddings: list[list[float]]
    usage: Usage
