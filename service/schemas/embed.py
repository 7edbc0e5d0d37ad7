"""Embedding."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from model.package.part import Side
from service.schemas.request import (
    MAX_INT32,
    TRUNCATE,
    TRUNCATION_SIDE,
    Ids,
    ListsOfIds,
    LongTexts,
    Request,
    Response,
    Text,
    Texts,
    Usage,
    as_lists_of_ids,
)


class TextsToEmbed(Request):
    """What a request says of texts to map to vectors, dense or sparse."""

    inputs: ClassVar = "input"

    input: Text | Texts | Ids | ListsOfIds = Field(
        description="a text, a list of token ids, or a list of either; ids are taken as /tokenize has them",
        examples=["A man is playing a guitar."],
    )
    prompt_name: Text | None = Field(None, description="one of the model's prompts, which goes before each text")
    prompt: Text | None = Field(None, description="the same in words, as 'query: '; empty for none")

    def ids(self) -> list[list[int]] | None:
        """Return the inputs if they are token ids, one list or several."""
        return as_lists_of_ids(self.input)

    def count_inputs(self) -> int:
        """Return how many vectors it asks for."""
        ids = self.ids()
        return super().count_inputs() if ids is None else len(ids)


class EmbedRequest(LongTexts, TextsToEmbed):
    """Texts to map to vectors."""

    dimensions: int | None = Field(
        None, ge=1, le=MAX_INT32, description="how many of the vector's first numbers to return; all if left out"
    )
    normalize: bool | None = Field(
        None, description="whether vectors are made 1 long, after they were cut; the model's own choice if left out"
    )


class EmbedResponse(Response):
    """A vector for each text; where they are 1 long their products are cosines."""

    model: str
    embeddings: list[list[float]]
    usage: Usage


class EmbedSparseRequest(TextsToEmbed):
    """Texts to map to the words that they are about."""

    truncate: bool = TRUNCATE
    truncation_side: Side | None = TRUNCATION_SIDE
    top_k: int | None = Field(
        None,
        ge=1,
        le=MAX_INT32,
        description="how many words to return, the heaviest; the model's own number or all if left out",
    )
    return_tokens: bool = Field(False, description="return the words, as the vocabulary has them, beside their ids")


class SparseVector(Response):
    """The ids of words that weigh anything, ascending, and their weights."""

    indices: list[int]
    values: list[float]
    tokens: list[str] | None = Field(None, description="empty where the tokenizer has none of an id")


class EmbedSparseResponse(Response):
    """A sparse vector for each text, as a model's `embedding.similarity` compares them."""

    model: str
    embeddings: list[SparseVector]
    usage: Usage
