"""The native routes of the tasks that encoders answer, all of them whole; `shared_routes` has the rest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Body

from model.package import TaskName
from service.schemas import (
    AnswerRequest,
    AnswerResponse,
    AnyRequest,
    ClassifyRequest,
    ClassifyResponse,
    FillRequest,
    FillResponse,
    TagRequest,
    TagResponse,
)
from service.schemas.classify import CLASSIFY_EXAMPLES

Whole = Callable[[AnyRequest, TaskName | None], Awaitable[Any]]


def add_encoder_routes(router: APIRouter, whole: Whole) -> None:
    """Add the routes; `whole` finds a request's task and returns its answer as JSON."""

    @router.post("/classify")
    async def classify(
        request: Annotated[ClassifyRequest, Body(openapi_examples=CLASSIFY_EXAMPLES)],
    ) -> ClassifyResponse:
        """Label texts, pairs of texts, or images, with the model's own labels or with any (zero-shot)."""
        return await whole(request, "classify")  # type: ignore[no-any-return]  # the task answers in kind

    @router.post("/tag")
    async def tag(request: TagRequest) -> TagResponse:
        """Find people, places and the like in texts of any length."""
        return await whole(request, "tag")  # type: ignore[no-any-return]  # the task answers in kind

    @router.post("/answer")
    async def answer(request: AnswerRequest) -> AnswerResponse:
        """Find the answers to questions in texts of any length."""
        return await whole(request, "answer")  # type: ignore[no-any-return]  # the task answers in kind

    @router.post("/fill")
    async def fill(request: FillRequest) -> FillResponse:
        """Guess missing words."""
        return await whole(request, "fill")  # type: ignore[no-any-return]  # the task answers in kind
