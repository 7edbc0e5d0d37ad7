"""Server-sent events."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from starlette.responses import StreamingResponse

from service.api.observing import observed
from service.errors import InternalError, ServiceError
from service.schemas import AnyEvent

logger = logging.getLogger(__name__)

# nginx would collect the events otherwise.
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


async def event_stream(events: AsyncGenerator[AnyEvent, None]) -> StreamingResponse:
    """Return events as a response; an error before the first one is raised, and is an ordinary error answer."""
    first = await anext(events)
    return StreamingResponse(_lines(first, events), media_type="text/event-stream", headers=HEADERS)


async def _lines(first: AnyEvent, events: AsyncGenerator[AnyEvent, None]) -> AsyncIterator[str]:
    async with aclosing(events):  # a client that leaves closes the events, and with them its sequences
        try:
            yield _line(first)
            async for event in events:
                yield _line(event)
            yield "data: [DONE]\n\n"
        except ServiceError as error:
            observed().reason = error.code
            yield f"event: error\ndata: {json.dumps(error.body())}\n\n"
        except Exception:
            logger.exception("a stream failed")
            observed().reason = InternalError.code
            yield f"event: error\ndata: {json.dumps(InternalError('the stream failed; try again').body())}\n\n"


def _line(event: AnyEvent) -> str:
    return f"data: {event.model_dump_json(exclude_none=True)}\n\n"
