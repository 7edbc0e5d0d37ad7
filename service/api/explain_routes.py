"""The route of explanations, which every model of texts answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Body

from model.package import TaskName
from service.schemas import AnyRequest, ExplainRequest, ExplainResponse
from service.schemas.explain import EXPLAIN_EXAMPLES


def add_explain_routes(router: APIRouter, whole: Callable[[AnyRequest, TaskName | None], Awaitable[Any]]) -> None:
    """Add the route; `whole` finds a request's task and returns its answer as JSON."""

    @router.post("/explain", response_model_exclude_none=True)
    async def explain(
        request: Annotated[ExplainRequest, Body(openapi_examples=EXPLAIN_EXAMPLES)],
    ) -> ExplainResponse:
        """Show what a model sees in a text, and what decides its answer: attention, contributions, steps, alignment."""
        return await whole(request, None)  # type: ignore[no-any-return]  # the task answers in kind
