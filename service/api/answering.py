"""What every protocol asks of a task: an answer, or its events, in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from service.api.deadline import deadline, deadline_exceeded
from service.api.observing import observed
from service.errors import TooLarge
from service.schemas import AnyEvent, AnyRequest, Response
from service.settings import Limits
from service.tasks.task import Task


async def answer(task: Task, request: AnyRequest, limits: Limits) -> Response:
    """Answer a request whole; raises `DeadlineExceeded`, `TooLarge`, or what the task raises."""
    check_inputs(request, limits)
    try:
        async with asyncio.timeout_at(deadline()):
            response = await task.predict(request, observed().client)
    except TimeoutError:
        raise deadline_exceeded(limits) from None
    observed().count(response)
    return response


async def stream(task: Task, request: AnyRequest, limits: Limits) -> AsyncGenerator[AnyEvent, None]:
    """Yield the events of an answer; raises as `answer` does, by the next event at the latest."""
    check_inputs(request, limits)
    async with aclosing(task.stream(request, observed().client)) as events:
        while True:
            try:
                async with asyncio.timeout_at(deadline()):
                    event = await anext(events)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise deadline_exceeded(limits) from None
            observed().count(event)
            yield event


def check_inputs(request: AnyRequest, limits: Limits) -> None:
    """Refuse more inputs than one request may bring."""
    count, param = request.count_inputs(), request.counted_by()
    if count > limits.max_inputs:
        raise TooLarge(f"{param} asks for {count} answers; the limit is {limits.max_inputs} for one request", param)
