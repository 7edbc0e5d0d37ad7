"""What completions and chat have in common: the choices of the task of generation, whole and in pieces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Protocol

from service.api.calls import Calls
from service.api.invalid import naming
from service.api.protocols.openai.answers import OpenAIUsage, Stamp
from service.routing import Kind
from service.schemas import Choice, GenerateEvent, GenerateRequest, GenerateResponse, UsageEvent
from service.turns import Turn


class Asked(Protocol):
    """A request of one of the protocol's routes that generate."""

    @property
    def model(self) -> str | None:
        """The model that is named."""

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with the usage."""

    def names(self) -> dict[str, str]:
        """Return what the client calls fields of the task's request."""

    def task_request(self) -> GenerateRequest:
        """Return it in the task's words; raises `InvalidRequest`."""


async def whole(
    calls: Calls, asked: Asked, kind: Kind, prefix: str, write: Callable[[Choice, Turn], Awaitable[Any]]
) -> dict[str, Any]:
    """Return the fields of a whole answer, whose id begins with `prefix`; `write` makes a choice in its form."""
    with naming(**asked.names()):
        answer = await calls.answer_as(GenerateResponse, asked.task_request(), kind)
    choices, turn = [], Turn()
    for choice in answer.choices:
        choices.append(await write(choice, turn))
        choice.logprobs = None  # not all at the end: to free a hundred thousand objects takes long
    return {**Stamp.of(prefix, answer.model).fields(), "choices": choices, "usage": OpenAIUsage.of(answer.usage)}


async def pieces(
    calls: Calls,
    asked: Asked,
    kind: Kind,
    prefix: str,
    write: Callable[[GenerateEvent, Turn], Awaitable[Any]],
) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the fields of each chunk of a stream; raises a `ServiceError`."""
    stamp = Stamp.of(prefix, calls.find(asked.model, kind).manifest.name).fields()
    usage = {"usage": None} if asked.includes_usage else {}
    turn = Turn()
    with naming(**asked.names()):
        async with aclosing(calls.events(asked.task_request(), kind)) as events:
            async for event in events:
                if isinstance(event, GenerateEvent):
                    yield {**stamp, **usage, "choices": [await write(event, turn)]}
                elif isinstance(event, UsageEvent) and asked.includes_usage:
                    yield {**stamp, "choices": [], "usage": OpenAIUsage.of(event.usage)}
