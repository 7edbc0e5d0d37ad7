"""Summaries, whole or as server-sent events, and the text of ids; `shared_routes` has the other tasks that decode."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from model.package import TaskName
from service.schemas import (
    AnyRequest,
    DetokenizeRequest,
    DetokenizeResponse,
    SummarizeRequest,
    SummarizeResponse,
)


def add_decoder_routes(
    router: APIRouter,
    whole: Callable[[AnyRequest, TaskName | None], Awaitable[Any]],
    streamed: Callable[[AnyRequest, TaskName], Awaitable[Response]],
) -> None:
    """Add the routes; each finds its task, calls it, and returns the answer, or its events."""

    @router.post("/summarize", response_model=SummarizeResponse, response_model_exclude_none=True)
    async def summarize(request: SummarizeRequest) -> Any:
        """Summarize texts."""
        return await (streamed(request, "summarize") if request.stream else whole(request, "summarize"))

    @router.post("/detokenize", response_model=DetokenizeResponse)
    async def detokenize(request: DetokenizeRequest) -> Any:
        """Return the texts of token ids."""
        return await whole(request, None)
