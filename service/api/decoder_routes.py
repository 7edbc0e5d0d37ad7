"""The routes of the tasks that decode, whole or as server-sent events, and of ids as text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Body
from starlette.responses import Response

from model.package import TaskName
from service.schemas import (
    AnyRequest,
    DetokenizeRequest,
    DetokenizeResponse,
    GenerateRequest,
    GenerateResponse,
    SummarizeRequest,
    SummarizeResponse,
)
from service.schemas.generate import GENERATE_EXAMPLES


def add_decoder_routes(
    router: APIRouter,
    whole: Callable[[AnyRequest, TaskName | None], Awaitable[Any]],
    streamed: Callable[[AnyRequest, TaskName], Awaitable[Response]],
) -> None:
    """Add the routes; each finds its task, calls it, and returns the answer, or its events."""

    @router.post("/generate", response_model=GenerateResponse, response_model_exclude_none=True)
    async def generate(request: Annotated[GenerateRequest, Body(openapi_examples=GENERATE_EXAMPLES)]) -> Any:
        """Continue prompts and conversations, or turn texts into texts: by sampling, greedily or by beam search."""
        return await (streamed(request, "generate") if request.stream else whole(request, "generate"))

    @router.post("/summarize", response_model=SummarizeResponse, response_model_exclude_none=True)
    async def summarize(request: SummarizeRequest) -> Any:
        """Summarize texts."""
        return await (streamed(request, "summarize") if request.stream else whole(request, "summarize"))

    @router.post("/detokenize", response_model=DetokenizeResponse)
    async def detokenize(request: DetokenizeRequest) -> Any:
        """Return the texts of token ids."""
        return await whole(request, None)
