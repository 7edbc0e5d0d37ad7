"""Ranking documents by how well they fit a query."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, Field

from model.package import Activation
from model.package.part import Side
from service.schemas.request import MAX_INT32, TRUNCATION_SIDE, Request, Response, Text, Usage

MAX_DOCUMENTS = 4096  # read in ten milliseconds; how many are ranked the service's limits say


class Document(BaseModel):
    """A document to rank."""

    text: Text


class RerankRequest(Request):
    """A query, and documents to rank by it (Cohere's and Jina's form)."""

    inputs: ClassVar = "documents"

    query: Text = Field(examples=["Who wrote Faust?"])
    documents: Annotated[list[Text | Document], Field(fail_fast=True)] = Field(
        max_length=MAX_DOCUMENTS,
        description="texts, or objects with a text",
        examples=[["Goethe worked on Faust all his life.", "The dog was good."]],
    )
    top_n: int | None = Field(None, ge=1, le=MAX_INT32, description="documents to return, best first; all if left out")
    return_documents: bool = Field(False, description="return the documents' texts, too")
    activation: Activation | None = Field(
        None,
        description="what makes scores of a cross-encoder's numbers; none leaves them raw; the model's own if left "
        "out; those of an embedding model are similarities of vectors, so of these it takes only none",
    )
    truncate: bool = Field(
        False,
        description="cut what is too long instead of refusing it: the longer of query and document first, where they "
        "are read together; an embedding model reads each alone",
    )
    truncation_side: Side | None = TRUNCATION_SIDE


class Ranked(Response):
    """A document's place in the request, and how well it fits."""

    index: int
    relevance_score: float
    document: Document | None = None


class RerankResponse(Response):
    """The documents, best first."""

    model: str
    results: list[Ranked]
    usage: Usage
