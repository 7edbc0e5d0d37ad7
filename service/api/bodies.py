"""Reading a request's body, within limits of size, time and memory, and of what it may hold.

The latter is seen before the body is parsed: no parser of JSON lets the event loop run meanwhile.
"""

from __future__ import annotations

import asyncio
import json
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
from service.errors import Compressed, NotJson, RequestTimeout, ServerOverloaded, ServiceError, TooLarge
from service.tasks.task import ANONYMOUS
from service.turns import Turn

BODIES_UNDER_WAY = 64  # as large as they may be
LARGE_BODY = 2**16  # bytes; as many smaller ones as requests that may run at a time come to a quarter of a gigabyte
LARGE_BODIES = 128  # as large as they may be, and their values six times as large, until they are answered
MAX_DIGITS = 20  # of a length that is announced; Python refuses to read thousands of them
COMPRESSIONS = frozenset({"br", "compress", "deflate", "gzip", "x-compress", "x-gzip", "zstd"})
MAX_VALUES = 65_536  # of one body: parsed in about ten milliseconds
MAX_DEPTH = 200  # of lists and objects in one another: what is written of them in Python calls itself for each
SPACE = b" \t\r\n\xef\xbb\xbf"  # the last three mark UTF-8
SPACES = 1024  # that may come first; behind more of them all is counted
BEGINNINGS = frozenset(b'[{"-0123456789tfnNI')  # of all that parsers take for JSON


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


def _is_in(encoding: str, body: bytes) -> bool:
    """Whether a body is a text in an encoding, as a parser of JSON reads it, rather than an image with some zeros."""
    try:
        body.decode(encoding, "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def check_values(body: bytes) -> None:
    """Refuse a body of more values than can be parsed quickly, or of deeper ones; raises `TooLarge`, `NotJson`."""
    encoding = json.detect_encoding(body)
    if not encoding.startswith("utf-8") and _is_in(encoding, body):
        # A parser of JSON would read what was not counted here.
        raise NotJson(f"the body is in {encoding}; send JSON in UTF-8")
    if not BEGINNINGS.intersection(body[:SPACES].lstrip(SPACE)[:1] or b"["):
        return  # a picture, or a form
    values, openers = body.count(b","), body.count(b"[") + body.count(b"{")
    if values < MAX_VALUES and openers <= MAX_DEPTH:
        return
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # so that every quote left begins or ends a string
    if plain.count(b'"') > 4 * MAX_VALUES:  # a value is two strings at most: itself and its key
        raise _too_many_values()
    outside = b"".join(plain.split(b'"')[::2])
    if max(outside.count(b","), outside.count(b"[") + outside.count(b"{")) >= MAX_VALUES:
        raise _too_many_values()
    if _depth(outside) > MAX_DEPTH:
        raise TooLarge(f"the body has more than {MAX_DEPTH} lists and objects in one another", "body")


def _too_many_values() -> TooLarge:
    return TooLarge(f"the body has more than {MAX_VALUES} values; send several requests", "body")


def _depth(outside: bytes) -> int:
    """Return how many lists and objects are open at the most, in what stands outside of strings."""
    steps = np.zeros(256, np.int8)
    steps[list(b"[{")], steps[list(b"]}")] = 1, -1
    return int(np.cumsum(steps[np.frombuffer(outside, np.uint8)], dtype=np.int32).max(initial=0))
