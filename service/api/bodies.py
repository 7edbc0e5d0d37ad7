"""Reading a request's body, within limits of size, time and memory, and of what it may hold (`json_values.py`)."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.middleware import error_response
from service.api.observing import observed
from service.errors import Compressed, RequestTimeout, ServerOverloaded, ServiceError, TooLarge
from service.json_values import MAX_VALUES, check_values, may_be_json
from service.tasks.task import ANONYMOUS
from service.turns import Turn

BODIES_UNDER_WAY = 64  # as large as they may be
LARGE = 2**16  # bytes of memory; as many smaller bodies as requests that may run at a time come to 256 MiB
LARGE_BODIES = 128  # of plain text, as large as they may be, until they are answered
PART_OF_MEMORY = 16  # of all that there is: bodies have no more of it in one process, and answers neither
PLAIN, WIDE = 2, 5  # bytes of memory for each of a body: itself, and its strings, of one byte a character or of four
VALUE = 128  # bytes of memory of a list, an object, or what else a comma parts: at most 124 were measured
AFTER_LATIN_1 = 0xC4  # from which on a byte of UTF-8 begins a character that Python does not keep in one byte
MAX_DIGITS = 20  # of a length that is announced; Python refuses to read thousands of them
COMPRESSIONS = frozenset({"br", "compress", "deflate", "gzip", "x-compress", "x-gzip", "zstd"})


@dataclass
class Held:
    """How many bytes of memory large bodies, or answers, of clients hold, and how many they may hold."""

    room: int
    by_client: Counter[str] = field(default_factory=Counter, init=False)

    def is_full_for(self, client: str) -> bool:
        """Whether there is no room, of which a key may have half. Who comes alone has room, however much it takes."""
        own = self.by_client[client] if client != ANONYMOUS else 0
        return self.by_client.total() >= self.room or 2 * own >= self.room

    @contextmanager
    def holding(self, size: int, client: str) -> Iterator[None]:
        """Count so many bytes meanwhile, if they are many."""
        size = size if size > LARGE else 0
        self.by_client[client] += size
        try:
            yield
        finally:
            self.by_client[client] -= size
            if not self.by_client[client]:
                del self.by_client[client]


@dataclass
class BodyLimits:
    """How large a body may be, how long it may take to come, and how much may be here of all bodies and answers.

    Of bodies that are not whole that is as much as `BODIES_UNDER_WAY` of the largest: who opens many connections and
    sends slowly would fill the memory before any key is known. Of those that are answered it is what they take as
    Python has them, of answers what their readers have not taken: queues count neither.
    """

    max_bytes: int
    timeout_s: float
    memory: int = sys.maxsize  # of this machine or container, in bytes
    under_way: int = field(default=0, init=False)  # bytes that are here of bodies that are not whole
    bodies: Held = field(init=False)
    answers: Held = field(init=False)

    def __post_init__(self) -> None:
        room = min(LARGE_BODIES * PLAIN * self.max_bytes, self.memory // PART_OF_MEMORY)
        self.bodies, self.answers = Held(room), Held(room)

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


def memory_of(body: bytes) -> int:
    """Return about how many bytes of memory a body takes until it is answered, by what can be seen before it is parsed.

    One character outside of Latin-1 may widen all others of its string.
    """
    # In turn, as NumPy takes longer over a short body than all the rest.
    is_wide = b"\\u" in body or not (body.isascii() or np.frombuffer(body, np.uint8).max() < AFTER_LATIN_1)
    # Outside of strings there are no more of either, or the body would have been refused.
    parts = (body.count(b","), body.count(b"[") + body.count(b"{")) if may_be_json(body) else ()
    values = sum(min(count, MAX_VALUES) for count in parts)
    return (WIDE if is_wide else PLAIN) * len(body) + VALUE * values


class LimitBody:
    """Reads the body before the routes do, and refuses one that is too large or too slow as soon as that is known.

    It also counts what large bodies and answers hold, and refuses what would hold more where there is no room.
    """

    def __init__(self, app: ASGIApp, limits: BodyLimits) -> None:
        self._app, self._limits = app, limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = observed().client
        try:
            if scope["method"] == "POST" and self._limits.answers.is_full_for(client):
                raise ServerOverloaded("too many answers wait for their readers; try again")
            body = await self._limits.read(scope, receive)
            size = memory_of(body)
            if size > LARGE and self._limits.bodies.is_full_for(client):
                raise ServerOverloaded("too many large bodies are being answered at once; try again")
        except ClientDisconnect:
            observed().has_left = True
            return
        except ServiceError as error:
            await error_response(error)(scope, receive, send)
            return

        async def counting(message: Message) -> None:
            with self._limits.answers.holding(len(message.get("body", b"")), client):
                await send(message)

        replayed = replay(body, receive)
        del body  # of which a request has a copy of its own
        with self._limits.bodies.holding(size, client):
            await self._app(scope, replayed, counting)


def replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive that gives the body first, and then what really comes: the disconnect."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed
