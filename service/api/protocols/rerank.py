"""Rerank as Jina's and Cohere's clients ask for it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from model.package.part import Side
from service.api.answers import json_answer
from service.api.calls import Calls
from service.api.invalid import native
from service.api.observing import observed
from service.api.protocols.lengths import check_length
from service.api.protocols.nulls import NotDone, NullsLeftOut
from service.schemas import Document, Ranked, RerankRequest, RerankResponse
from service.schemas.request import MAX_INT32, TRUNCATION_SIDE, Text
from service.schemas.rerank import MAX_DOCUMENTS

EXAMPLE = {
    "query": "Who wrote Faust?",
    "documents": ["Goethe worked on Faust all his life.", "The dog was good."],
    "top_n": 1,
}
EXAMPLES = {"documents": {"summary": "documents", "value": EXAMPLE}}


class _Rerank(NullsLeftOut):
    """What both have in common; unknown fields are passed over."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())

    model: str | None = Field(None, description="name of the model; if left out, the first that fits answers")
    query: Text
    documents: Annotated[list[Text | Document], Field(fail_fast=True)] = Field(
        max_length=MAX_DOCUMENTS, description="texts, or objects with a text; those that are too long are cut"
    )
    top_n: int | None = Field(None, ge=1, le=MAX_INT32, description="documents to return, best first; all if left out")
    top_k: int | None = Field(None, ge=1, le=MAX_INT32, description="another name of it (Voyage)")
    truncation_side: Side | None = TRUNCATION_SIDE
    max_tokens_per_doc: int | None = Field(
        None, ge=1, le=MAX_INT32, description="documents are cut at the model's own length, so at least that"
    )
    max_doc_length: int | None = Field(None, ge=1, le=MAX_INT32, description="another name of it")
    max_query_length: int | None = Field(None, ge=1, le=MAX_INT32, description="the same of the query")
    max_tokens_per_query: int | None = Field(None, ge=1, le=MAX_INT32, description="another name of it")
    truncate_prompt_tokens: int | None = Field(
        None, ge=-1, le=MAX_INT32, description="the same in vLLM's words; -1: the model's own length"
    )
    max_chunks_per_doc: Literal[1] | None = None
    rank_fields: list[Literal["text"]] | None = Field(None, max_length=1)
    raw_scores: NotDone = None
    use_activation: Literal[True] | None = None
    activation: Literal[True, "sigmoid"] | None = None
    instruction: NotDone = None
    instruct: NotDone = None
    chat_template_kwargs: NotDone = None

    @field_validator("top_n", "top_k", mode="before")
    @classmethod
    def _none_is_all(cls, value: object, field: ValidationInfo) -> object:
        words = (0, -1) if field.field_name == "top_k" else (0,)  # for all, vLLM's first of all
        return None if value in words else value


class JinaRerankRequest(_Rerank):
    """A query, and documents to rank by it."""

    return_documents: bool = Field(True, description="return the documents' texts, too")
    truncation: bool = Field(True, description="cut documents that are too long instead of refusing them")


class Spans(BaseModel):
    """Which parts of a document are relevant is not told here."""

    mode: Literal["disabled"]


class CohereRerankRequest(_Rerank):
    """A query, and documents to rank by it."""

    relevant_spans: Spans | None = Field(None, description="not done here")
    return_documents: bool = Field(False, description="return the documents' texts, too")


class JinaUsage(BaseModel):
    """Counted tokens."""

    prompt_tokens: int
    total_tokens: int


class JinaRerankResponse(BaseModel):
    """The documents, best first."""

    model_config = ConfigDict(protected_namespaces=())

    model: str
    object: Literal["list"] = "list"
    usage: JinaUsage
    results: list[Ranked]


class CohereRerankResponse(BaseModel):
    """The documents, best first."""

    id: str
    results: list[Ranked]
    meta: dict[str, Any]


def add_rerank_routes(router: APIRouter, calls: Calls) -> None:
    """Add the routes."""

    @router.post("/v1/rerank", response_model=JinaRerankResponse, response_model_exclude_none=True)
    async def jina(request: Annotated[JinaRerankRequest, Body(openapi_examples=EXAMPLES)]) -> Any:
        """Sort documents by how well they fit a query (Jina)."""
        _check_length(calls, request)
        answer = await _ranked(calls, request, cuts=request.truncation, returns=request.return_documents)
        tokens = answer.usage.prompt_tokens
        usage = JinaUsage(prompt_tokens=tokens, total_tokens=tokens)
        return await json_answer(JinaRerankResponse(model=answer.model, usage=usage, results=answer.results))

    @router.post("/v2/rerank", response_model=CohereRerankResponse, response_model_exclude_none=True)
    async def cohere(request: Annotated[CohereRerankRequest, Body(openapi_examples=EXAMPLES)]) -> Any:
        """Sort documents by how well they fit a query (Cohere)."""
        _check_length(calls, request)
        answer = await _ranked(calls, request, cuts=True, returns=request.return_documents)
        meta = {"api_version": {"version": "2"}, "tokens": {"input_tokens": answer.usage.prompt_tokens}}
        return await json_answer(CohereRerankResponse(id=observed().id, results=answer.results, meta=meta))


async def _ranked(calls: Calls, request: _Rerank, *, cuts: bool, returns: bool) -> RerankResponse:
    manifest = calls.find(request.model, "rerank").manifest
    asked = native(
        RerankRequest,
        model=request.model,
        query=request.query,
        documents=request.documents,
        top_n=request.top_n or request.top_k,
        return_documents=returns,
        truncate=cuts,
        truncation_side=request.truncation_side,
        # Scores are 0 to 1 in both protocols, whatever a model's own are; similarities stay what they are.
        activation="sigmoid" if manifest.is_cross_encoder else None,
    )
    return await calls.answer_as(RerankResponse, asked, "rerank")


def _check_length(calls: Calls, request: _Rerank) -> None:
    """Refuse documents that are to be cut shorter than the model cuts them."""
    limit = calls.find(request.model, "rerank").manifest.limits.max_input_tokens
    for name in (
        "max_tokens_per_doc",
        "max_doc_length",
        "max_query_length",
        "max_tokens_per_query",
        "truncate_prompt_tokens",
    ):
        check_length(name, getattr(request, name), limit)
