"""The paths that the native API shares with Text Embeddings Inference: each is one route that understands both.

A body is TEI's if it has TEI's field (`inputs`, `texts`) and not ours (`input`, `documents`). Then answer and errors
are TEI's, too.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import Discriminator, Tag

from service.api.answers import json_answer
from service.api.calls import Calls
from service.api.error_forms import TEI
from service.api.protocols.tei import answering
from service.api.protocols.tei.schemas import Rank, SimpleToken, TeiEmbedRequest, TeiRerankRequest, TeiTokenizeRequest
from service.api.shared_bodies import OURS, THEIRS, whose
from service.schemas import (
    EmbedRequest,
    EmbedResponse,
    RerankRequest,
    RerankResponse,
    TokenizeRequest,
    TokenizeResponse,
)

EmbedBody = Annotated[
    Annotated[EmbedRequest, Tag(OURS)] | Annotated[TeiEmbedRequest, Tag(THEIRS)],
    Discriminator(whose("input", "inputs", TEI)),
]
RerankBody = Annotated[
    Annotated[RerankRequest, Tag(OURS)] | Annotated[TeiRerankRequest, Tag(THEIRS)],
    Discriminator(whose("documents", "texts", TEI)),
]
TokenizeBody = Annotated[
    Annotated[TokenizeRequest, Tag(OURS)] | Annotated[TeiTokenizeRequest, Tag(THEIRS)],
    Discriminator(whose("input", "inputs", TEI)),
]

EMBED_EXAMPLES = {
    "native": {"summary": "a text", "value": {"input": "A man is playing a guitar."}},
    "tei": {"summary": "in TEI's form", "value": {"inputs": ["A man is playing a guitar.", "It rains."]}},
}
FAUST = "Goethe worked on Faust all his life."
RERANK_EXAMPLES = {
    "native": {
        "summary": "documents",
        "value": {"query": "Who wrote Faust?", "documents": [FAUST, "The dog was good."], "top_n": 1},
    },
    "tei": {
        "summary": "in TEI's form",
        "value": {"query": "Who wrote Faust?", "texts": [FAUST, "The dog was good."], "return_text": True},
    },
}
TOKENIZE_EXAMPLES = {
    "native": {"summary": "a text", "value": {"input": "The dog was good."}},
    "tei": {"summary": "in TEI's form", "value": {"inputs": "The dog was good.", "add_special_tokens": False}},
}


def add_shared_routes(router: APIRouter, calls: Calls) -> None:
    """Add the routes."""

    @router.post("/embed", response_model=EmbedResponse | list[list[float]])
    async def embed(request: Annotated[EmbedBody, Body(openapi_examples=EMBED_EXAMPLES)]) -> Any:
        """Map texts to vectors that are near one another where the texts mean alike."""
        if isinstance(request, TeiEmbedRequest):
            return await json_answer(await answering.embed(calls, request))
        return await json_answer(await calls.answer(request, "embed"))

    @router.post("/rerank", response_model=RerankResponse | list[Rank], response_model_exclude_none=True)
    async def rerank(request: Annotated[RerankBody, Body(openapi_examples=RERANK_EXAMPLES)]) -> Any:
        """Sort documents by how well they fit a query."""
        if isinstance(request, TeiRerankRequest):
            return await json_answer(await answering.rerank(calls, request))
        return await json_answer(await calls.answer(request, "rerank"))

    @router.post("/tokenize", response_model=TokenizeResponse | list[list[SimpleToken]])
    async def tokenize(request: Annotated[TokenizeBody, Body(openapi_examples=TOKENIZE_EXAMPLES)]) -> Any:
        """Show the tokens of texts."""
        if isinstance(request, TeiTokenizeRequest):
            return await json_answer(await answering.tokenize(calls, request))
        return await json_answer(await calls.answer(request, None))
