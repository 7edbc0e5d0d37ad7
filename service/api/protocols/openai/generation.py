"""What completions and chat have in common: the choices of the task of generation, whole and in pieces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from service.api.calls import Calls
from service.api.protocols.openai.answers import OpenAIUsage, Stamp
from service.ingress import Kind
from service.schemas import Choice, GenerateEvent, GenerateRequest, GenerateResponse, UsageEvent
from service.turns import Turn


async def whole(
    calls: Calls, request: GenerateRequest, kind: Kind, prefix: str, write: Callable[[Choice, Turn], Awaitable[Any]]
) -> dict[str, Any]:
    """Return the fields of a whole answer, whose id begins with `prefix`; `write` makes a choice in its form."""
    answer = await calls.answer_as(GenerateResponse, request, kind)
    choices, turn = [], Turn()
    for choice in answer.choices:
        choices.append(await write(choice, turn))
        choice.logprobs = None  # not all at the end: to free a hundred thousand objects takes long
    return {**Stamp.of(prefix, answer.model).fields(), "choices": choices, "usage": OpenAIUsage.of(answer.usage)}


async def pieces(
    calls: Calls,
    request: GenerateRequest,
    kind: Kind,
    prefix: str,
    write: Callable[[GenerateEvent, Turn], Awaitable[Any]],
    *,
    includes_usage: bool,
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the fields of each chunk of a stream; raises a `ServiceError`."""
    stamp = Stamp.of(prefix, calls.find(request.model, kind).manifest.name).fields()
    usage = {"usage": None} if includes_usage else {}
    turn = Turn()
    async with aclosing(calls.events(request, kind)) as events:
        async for event in events:
            if isinstance(event, GenerateEvent):
                yield {**stamp, **usage, "choices": [await write(event, turn)]}
            elif isinstance(event, UsageEvent) and includes_usage:
                yield {**stamp, "choices": [], "usage": OpenAIUsage.of(event.usage)}
