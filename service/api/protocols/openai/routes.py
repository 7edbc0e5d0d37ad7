"""The routes of OpenAI's protocol."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Body

from service.api.answers import json_answer
from service.api.calls import Calls
from service.api.cards import card_of
from service.api.protocols.openai import chat, completions, decisions, embeddings, responses
from service.api.protocols.openai.chat import ChatCompletion, ChatRequest
from service.api.protocols.openai.completions import Completion, CompletionRequest
from service.api.protocols.openai.decision_bodies import Decisions, DecisionsRequest
from service.api.protocols.openai.embeddings import Embeddings, EmbeddingsRequest
from service.api.protocols.openai.response_answers import ResponseObject
from service.api.protocols.openai.response_bodies import ResponsesRequest
from service.api.protocols.openai.responses import ResponseStream
from service.api.streaming import event_stream
from service.schemas import ModelCard, ModelList

STREAMS: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}


def add_openai_routes(router: APIRouter, calls: Calls) -> None:
    """Add the routes; each translates a request, has it answered, and translates the answer."""
    keep_alive_s = calls.limits.keep_alive_s

    @router.post("/embeddings", response_model=Embeddings)  # as Text Embeddings Inference and Infinity have it
    @router.post("/v1/embeddings", response_model=Embeddings)
    async def embed(
        request: Annotated[EmbeddingsRequest, Body(openapi_examples=embeddings.EXAMPLES)],
    ) -> Any:
        """Map texts to vectors, as OpenAI's clients ask for it."""
        return await json_answer(await embeddings.embeddings(request, calls))

    @router.post("/v1/completions", response_model=Completion, responses=STREAMS)
    async def complete(
        request: Annotated[CompletionRequest, Body(openapi_examples=completions.EXAMPLES)],
    ) -> Any:
        """Continue prompts, as OpenAI's clients ask for it."""
        if request.stream:
            return await event_stream(completions.completion_chunks(request, calls), keep_alive_s)
        return await json_answer(await completions.completion(request, calls))

    @router.post("/v1/chat/completions", response_model=ChatCompletion, responses=STREAMS)
    async def converse(
        request: Annotated[ChatRequest, Body(openapi_examples=chat.EXAMPLES)],
    ) -> Any:
        """Continue a conversation, as OpenAI's clients ask for it, by a model that has a chat template."""
        if request.stream:
            return await event_stream(chat.chat_chunks(request, calls), keep_alive_s)
        return await json_answer(await chat.chat_completion(request, calls))

    @router.post("/v1/responses", response_model=ResponseObject, responses=STREAMS)
    async def respond(
        request: Annotated[ResponsesRequest, Body(openapi_examples=responses.EXAMPLES)],
    ) -> Any:
        """Continue a conversation, as OpenAI's newer clients ask for it, by a model that has a chat template."""
        if request.stream:
            stream = ResponseStream(request, calls)
            return await event_stream(stream.events(), keep_alive_s, last="", told=stream.told)
        return await json_answer(await responses.response(request, calls))

    @router.post("/v1/decisions", response_model=Decisions)
    async def decide(
        request: Annotated[DecisionsRequest, Body(openapi_examples=decisions.EXAMPLES)],
    ) -> Any:
        """Answer questions about a text with probabilities: whether, which of several, and how much."""
        return await json_answer(await decisions.decisions(request, calls))

    @router.get("/v1/models")
    async def models() -> ModelList:
        """List the models, what they are for, and how good they were measured to be."""
        return ModelList(data=await asyncio.gather(*(card_of(task, calls.tasks) for task in calls.tasks)))

    @router.get("/v1/models/{model:path}")
    async def model(model: str) -> ModelCard:
        """Tell of one model what the list tells of all."""
        return await card_of(calls.tasks.named(calls.tasks.name_in(model) or model, None), calls.tasks)
