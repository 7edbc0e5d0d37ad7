"""Server-sent events."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from pydantic import BaseModel
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.api.answers import is_long, json_pieces
from service.api.error_forms import NATIVE
from service.api.observing import observed
from service.errors import InternalError, ServiceError
from service.schemas import Response

logger = logging.getLogger(__name__)

# nginx would collect the events otherwise.
HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
ENDS_OF_LINES = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
DONE = "data: [DONE]\n\n"  # behind the last event, as OpenAI has it
COMMENT = b": keep-alive\n\n"  # clients pass over it; so do proxies, but they see that something comes


class NamedEvent(Response):
    """An event whose type is its name in the stream, too, by which some clients tell events apart."""

    type: str


async def event_stream(
    events: AsyncGenerator[BaseModel, None],
    keep_alive_s: float,
    last: str = DONE,
    told: Callable[[ServiceError], NamedEvent] | None = None,
) -> StreamingResponse:
    """Return events as a response that ends with `last`, with a comment whenever none came for `keep_alive_s`.

    An error before the first event is raised, and is an ordinary error answer, unless the first takes longer than that:
    then the response begins without it, and an error is an event as it is later: what `told` returns, or its body.
    """
    first = asyncio.create_task(_next(events))
    try:
        await asyncio.wait([first], timeout=keep_alive_s)
        if first.done():
            first.result()
    except BaseException:
        await _leave(first, events)
        raise
    return _EventStream(first, events, keep_alive_s, _lines(first, events, last, told))


async def _next(events: AsyncGenerator[BaseModel, None]) -> BaseModel:
    return await anext(events)


async def _leave(first: asyncio.Task[BaseModel], events: AsyncGenerator[BaseModel, None]) -> None:
    """Close the events, and with them their sequences, whether or not the first has come."""
    first.cancel()
    await asyncio.wait([first])
    await events.aclose()


class _EventStream(StreamingResponse):
    """A response that closes its events whatever becomes of it."""

    def __init__(
        self,
        first: asyncio.Task[BaseModel],
        events: AsyncGenerator[BaseModel, None],
        keep_alive_s: float,
        lines: AsyncGenerator[str, None],
    ) -> None:
        self._first, self._events, self._keep_alive_s, self._lines = first, events, keep_alive_s, lines
        super().__init__(self._lines, media_type="text/event-stream", headers=HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._lines.aclose()
            await _leave(self._first, self._events)

    async def stream_response(self, send: Send) -> None:
        """Send lines as they come, and comments in between."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with self._comments(send):
            async for line in self._lines:
                await send({"type": "http.response.body", "body": line.encode(), "more_body": True})
                self._sent_at = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    @asynccontextmanager
    async def _comments(self, send: Send) -> AsyncIterator[None]:
        """Send a comment whenever nothing was sent for a while, from a task of its own: one a stream, not an event."""
        waited = 0.0 if self._first.done() else self._keep_alive_s
        self._sent_at = asyncio.get_running_loop().time() - waited
        task = asyncio.create_task(self._send_comments(send))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _send_comments(self, send: Send) -> None:
        now = asyncio.get_running_loop().time
        with suppress(OSError):  # the client has left; whoever sends its events is told so too
            while True:
                await asyncio.sleep(self._sent_at + self._keep_alive_s - now())
                if now() >= self._sent_at + self._keep_alive_s:
                    self._sent_at = now()
                    await send({"type": "http.response.body", "body": COMMENT, "more_body": True})


async def _lines(
    first: asyncio.Task[BaseModel],
    events: AsyncGenerator[BaseModel, None],
    last: str,
    told: Callable[[ServiceError], NamedEvent] | None,
) -> AsyncGenerator[str, None]:
    try:
        yield await _line(await first)
        async for event in events:
            yield await _line(event)
        if last:
            yield last
    except ServiceError as error:
        observed().break_off(error)
        yield await _error_line(error, told)
    except Exception as failure:
        logger.exception("a stream failed")
        ours = InternalError("the stream failed; try again")
        observed().break_off(ours, failure)
        yield await _error_line(ours, told)


async def _line(event: BaseModel) -> str:
    name = f"event: {event.type}\n" if isinstance(event, NamedEvent) else ""
    if is_long(event):
        pieces = [_on_one_line(piece.decode()) async for piece in json_pieces(event)]
        return f"{name}data: {''.join(pieces)}\n\n"
    return f"{name}data: {_on_one_line(event.model_dump_json(exclude_none=True))}\n\n"


def _on_one_line(content: str) -> str:
    # Clients that split by `str.splitlines`, as httpx does, would break a line at these. All are within JSON's texts.
    return content.translate(ENDS_OF_LINES)


async def _error_line(error: ServiceError, told: Callable[[ServiceError], NamedEvent] | None) -> str:
    if told is not None:
        return await _line(told(error))
    form = observed().error_form
    event = "event: error\n" if form is NATIVE else ""  # other protocols' clients look at the data alone
    return f"{event}data: {json.dumps(form.body(error))}\n\n"
