"""Embedding."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from service.schemas.request import LongTexts, Response, Text, Texts, Usage


class EmbedRequest(LongTexts):
    """Texts to map to vectors."""

    inputs: ClassVar = "input"

    input: Text | Texts = Field(description="a text, or a list of texts", examples=["A man is playing a guitar."])
    prompt_name: Text | None = Field(None, description="one of the model's prompts, which goes before each text")
    prompt: Text | None = Field(None, description="the same in words, as 'query: '; empty for none")
    dimensions: int | None = Field(
        None, ge=1, description="how many of the vector's first numbers to return; all if left out"
    )
    normalize: bool | None = Field(
        None, description="whether vectors are made 1 long, after they were cut; the model's own choice if left out"
    )


class EmbedResponse(Response):
    """A vector for each text; where they are 1 long their products are cosines."""

    model: str
    embeddings: list[list[float]]
    usage: Usage
