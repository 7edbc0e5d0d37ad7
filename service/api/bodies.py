"""Reading a request's body, within limits of size, time and memory, and of what it may hold (`json_values.py`)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.middleware import error_response
from service.api.observing import observed
from service.errors import Compressed, RequestTimeout, ServerOverloaded, ServiceError, TooLarge
from service.json_values import check_values
from service.tasks.task import ANONYMOUS
from service.turns import Turn

BODIES_UNDER_WAY = 64  # as large as they may be
LARGE_BODY = 2**16  # bytes; as many smaller ones as requests that may run at a time come to a quarter of a gigabyte
LARGE_BODIES = 128  # as large as they may be, and their values six times as large, until they are answered
MAX_DIGITS = 20  # of a length that is announced; Python refuses to read thousands of them
COMPRESSIONS = frozenset({"br", "compress", "deflate", "gzip", "x-compress", "x-gzip", "zstd"})


@dataclass
class BodyLimits:
    """How large a body may be, how long it may take to come, and how much may be here of all bodies.

    Of those that are not whole that is as much as `BODIES_UNDER_WAY` of the largest: who opens many connections and
    sends slowly would fill the memory before any key is known. Of those that are answered `LARGE_BODIES`: queues count
    what is to be computed, which a body of other things is not.
    """

    max_bytes: int
    timeout_s: float
    under_way: int = field(default=0, init=False)  # bytes that are here of bodies that are not whole
    large: Counter[str] = field(default_factory=Counter, init=False)  # bytes of clients' that are not answered yet

    def check_room(self, body: bytes, client: str) -> None:
        """Refuse a large body where there is no room, of which a key may have half; raises `ServerOverloaded`."""
        size, most = len(body), LARGE_BODIES * self.max_bytes
        own = self.large[client] + size if client != ANONYMOUS else 0
        if size > LARGE_BODY and (self.large.total() + size > most or own > most // 2):
            raise ServerOverloaded("too many large bodies are being answered at once; try again")

    @contextmanager
    def answering(self, body: bytes, client: str) -> Iterator[None]:
        """Count a large body meanwhile."""
        size = len(body) if len(body) > LARGE_BODY else 0
        self.large[client] += size
        try:
            yield
        finally:
            self.large[client] -= size
            self.large += Counter()  # without those who have none

    async def read(self, scope: Scope, receive: Receive) -> bytes:
        """Return a request's body.

        Raises `Compressed`, `TooLarge`, `RequestTimeout`, `ServerOverloaded`, `ClientDisconnect`, `NotJson`.
        """
        headers = Headers(scope=scope)
        announced = headers.get("content-length", "")
        if announced.isascii() and announced.isdigit():  # as "²" is not, which is a digit too
            self._check(int(announced[:MAX_DIGITS]))
        chunks: list[bytes] = []
        size, more = 0, True
        try:
            async with asyncio.timeout(self.timeout_s):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    chunks.append(message.get("body", b""))
                    size += len(chunks[-1])
                    self.under_way += len(chunks[-1])
                    self._check(size)
                    more = bool(message.get("more_body", False))
                    if more and self.under_way > BODIES_UNDER_WAY * self.max_bytes:
                        raise ServerOverloaded("too many bodies are being sent at once; try again")
        except TimeoutError:
            raise RequestTimeout(f"the body did not come within {self.timeout_s:g} s", "body") from None
        finally:
            self.under_way -= size
        body = b"".join(chunks)
        if body:
            _check_encoding(headers)
        turn = Turn()
        check_values(body)
        await turn.give()  # as parsing comes next, which takes as long
        return body

    def _check(self, size: int) -> None:
        if size > self.max_bytes:
            raise TooLarge(f"the body is larger than {self.max_bytes} bytes", "body")


def _check_encoding(headers: Headers) -> None:
    """Refuse a body that is compressed; raises `Compressed`. Others name what is none there, as utf-8."""
    named = ",".join(headers.getlist("content-encoding")).lower().split(",")
    found = next((each.strip() for each in named if each.strip() in COMPRESSIONS), None)
    if found is not None:
        raise Compressed(f"Content-Encoding {found!r} is not supported; send the body as it is")


class LimitBody:
    """Reads the body before the routes do, and refuses one that is too large or too slow as soon as that is known."""

    def __init__(self, app: ASGIApp, limits: BodyLimits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await self._limits.read(scope, receive)
            self._limits.check_room(body, observed().client)
        except ClientDisconnect:
            observed().has_left = True
            return
        except ServiceError as error:
            await error_response(error)(scope, receive, send)
            return
        with self._limits.answering(body, observed().client):
            await self._app(scope, replay(body, receive), send)


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive that gives the body first, and then what really comes: the disconnect."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed
