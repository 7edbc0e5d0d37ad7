"""The paths that the native API shares with another protocol: each is one route that understands both.

A body is Text Embeddings Inference's if it has its field (`inputs`, `texts`) and not ours (`input`, `documents`),
LibreTranslate's if it has `q` and not `input`, and Text Generation Inference's if it has `inputs` and no fields but
TGI's, so that who mistakes one of ours is told so. Then answer and errors are theirs, too.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import Discriminator, Tag

from service.api.answers import json_answer
from service.api.calls import Calls
from service.api.error_forms import HUGGING_FACE, LIBRETRANSLATE, TEI
from service.api.protocols.huggingface import decoders as tgi
from service.api.protocols.huggingface.bodies import TextGeneration, TextGenerationParameters
from service.api.protocols.libretranslate import answering as libretranslate
from service.api.protocols.libretranslate.schemas import LibreTranslateRequest, LibreTranslateResponse
from service.api.protocols.tei import answering as tei
from service.api.protocols.tei.schemas import (
    Rank,
    SimpleToken,
    SparseValue,
    TeiEmbedRequest,
    TeiEmbedSparseRequest,
    TeiRerankRequest,
    TeiTokenizeRequest,
)
from service.api.shared_bodies import OURS, THEIRS, has, whose
from service.api.streaming import event_stream
from service.schemas import (
    EmbedRequest,
    EmbedResponse,
    EmbedSparseRequest,
    EmbedSparseResponse,
    GenerateRequest,
    GenerateResponse,
    RerankRequest,
    RerankResponse,
    TokenizeRequest,
    TokenizeResponse,
    TranslateRequest,
    TranslateResponse,
)
from service.schemas.generate import GENERATE_EXAMPLES

EmbedBody = Annotated[
    Annotated[EmbedRequest, Tag(OURS)] | Annotated[TeiEmbedRequest, Tag(THEIRS)],
    Discriminator(whose(has("inputs", "input"), TEI)),
]
EmbedSparseBody = Annotated[
    Annotated[EmbedSparseRequest, Tag(OURS)] | Annotated[TeiEmbedSparseRequest, Tag(THEIRS)],
    Discriminator(whose(has("inputs", "input"), TEI)),
]
RerankBody = Annotated[
    Annotated[RerankRequest, Tag(OURS)] | Annotated[TeiRerankRequest, Tag(THEIRS)],
    Discriminator(whose(has("texts", "documents"), TEI)),
]
TokenizeBody = Annotated[
    Annotated[TokenizeRequest, Tag(OURS)] | Annotated[TeiTokenizeRequest, Tag(THEIRS)],
    Discriminator(whose(has("inputs", "input"), TEI)),
]

EMBED_EXAMPLES = {
    "native": {"summary": "a text", "value": {"input": "A man is playing a guitar."}},
    "tei": {"summary": "in TEI's form", "value": {"inputs": ["A man is playing a guitar.", "It rains."]}},
}
EMBED_SPARSE_EXAMPLES: dict[str, Any] = {
    "native": {
        "summary": "the heaviest words of a text",
        "value": {"input": "A man is playing a guitar.", "top_k": 8, "return_tokens": True},
    },
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


TranslateBody = Annotated[
    Annotated[TranslateRequest, Tag(OURS)] | Annotated[LibreTranslateRequest, Tag(THEIRS)],
    Discriminator(whose(has("q", "input"), LIBRETRANSLATE)),
]
DAN = "Dan loves ice cream."
TRANSLATE_EXAMPLES: dict[str, Any] = {
    "native": {"summary": "a text", "value": {"input": DAN, "target": "sv"}},
    "libretranslate": {"summary": "in LibreTranslate's form", "value": {"q": DAN, "source": "en", "target": "sv"}},
    "html": {
        "summary": "a page, whose tags stay",
        "value": {"q": f'<p class="green">{DAN}</p>', "source": "auto", "target": "sv", "format": "html"},
    },
}


# TGI's body has what says how to continue within `parameters`; further fields of clients change nothing.
NOT_TGI = (GenerateRequest.model_fields.keys() | TextGenerationParameters.model_fields.keys()) - {"stream", "model"}
GenerateBody = Annotated[
    Annotated[GenerateRequest, Tag(OURS)] | Annotated[TextGeneration, Tag(THEIRS)],
    Discriminator(whose(lambda body: "inputs" in body and body.keys().isdisjoint(NOT_TGI), HUGGING_FACE)),
]
TGI_EXAMPLE = {
    "summary": "in the form of Text Generation Inference",
    "value": {"inputs": "Once upon a time", "parameters": {"max_new_tokens": 20}},
}


def add_shared_routes(router: APIRouter, calls: Calls) -> None:
    """Add the routes."""

    @router.post(
        "/translate", response_model=TranslateResponse | LibreTranslateResponse, response_model_exclude_none=True
    )
    async def translate(request: Annotated[TranslateBody, Body(openapi_examples=TRANSLATE_EXAMPLES)]) -> Any:
        """Translate texts of any number of sentences."""
        if isinstance(request, LibreTranslateRequest):
            return await json_answer(await libretranslate.translate(calls, request))
        if request.stream:
            return await event_stream(calls.events(request, "translate"), calls.limits.keep_alive_s)
        return await json_answer(await calls.answer(request, "translate"))

    @router.post("/generate", response_model=GenerateResponse | tgi.GeneratedText, response_model_exclude_none=True)
    async def generate(
        request: Annotated[GenerateBody, Body(openapi_examples={**GENERATE_EXAMPLES, "tgi": TGI_EXAMPLE})],
    ) -> Any:
        """Continue prompts and conversations, or turn texts into texts: by sampling, greedily or by beam search."""
        if isinstance(request, TextGeneration):
            return await json_answer(await tgi.generated(calls, request))
        if request.stream:
            return await event_stream(calls.events(request, "generate"), calls.limits.keep_alive_s)
        return await json_answer(await calls.answer(request, "generate"))

    @router.post("/embed", response_model=EmbedResponse | list[list[float]])
    async def embed(request: Annotated[EmbedBody, Body(openapi_examples=EMBED_EXAMPLES)]) -> Any:
        """Map texts to vectors that are near one another where the texts mean alike."""
        if isinstance(request, TeiEmbedRequest):
            return await json_answer(await tei.embed(calls, request))
        return await json_answer(await calls.answer(request, "embed"))

    @router.post(
        "/embed_sparse",
        response_model=EmbedSparseResponse | list[list[SparseValue]],
        response_model_exclude_none=True,
    )
    async def embed_sparse(
        request: Annotated[EmbedSparseBody, Body(openapi_examples=EMBED_SPARSE_EXAMPLES)],
    ) -> Any:
        """Map texts to the words that they are about, each with a weight (SPLADE)."""
        if isinstance(request, TeiEmbedSparseRequest):
            return await json_answer(await tei.embed_sparse(calls, request))
        return await json_answer(await calls.answer(request, "embed_sparse"))

    @router.post("/rerank", response_model=RerankResponse | list[Rank], response_model_exclude_none=True)
    async def rerank(request: Annotated[RerankBody, Body(openapi_examples=RERANK_EXAMPLES)]) -> Any:
        """Sort documents by how well they fit a query."""
        if isinstance(request, TeiRerankRequest):
            return await json_answer(await tei.rerank(calls, request))
        return await json_answer(await calls.answer(request, "rerank"))

    @router.post("/tokenize", response_model=TokenizeResponse | list[list[SimpleToken]])
    async def tokenize(request: Annotated[TokenizeBody, Body(openapi_examples=TOKENIZE_EXAMPLES)]) -> Any:
        """Show the tokens of texts."""
        if isinstance(request, TeiTokenizeRequest):
            return await json_answer(await tei.tokenize(calls, request))
        return await json_answer(await calls.answer(request, None))
