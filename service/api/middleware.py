"""What every request passes first: keys, a full queue, the size of the body. Plain ASGI: streams are not buffered."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.observing import observed
from service.errors import ServerOverloaded, ServiceError, TooLarge, Unauthorized
from service.tasks.task import Task

UNQUEUED_PATHS = ("/tokenize", "/detokenize")
OPEN_PATHS = ("/health", "/ready")  # probes carry no key


def error_response(error: ServiceError) -> JSONResponse:
    """Return an error as the client gets it, and let it be counted."""
    observed().reason = error.code
    return JSONResponse(error.body(), error.status, headers=error.headers())


class RequireKey:
    """Refuses requests without one of the API keys, as `Authorization: Bearer …` or `X-API-Key`."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        if (
            scope["type"] == "http"
            and not scope["path"].endswith(OPEN_PATHS)
            and not self._is_valid(Headers(scope=scope))
        ):
            error = Unauthorized("a valid API key is needed, as 'Authorization: Bearer KEY' or 'X-API-Key: KEY'")
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_valid(self, headers: Headers) -> bool:
        given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ").strip()
        # Every key is compared, in constant time, so that timing tells nothing.
        return sum(hmac.compare_digest(given.encode(), key) for key in self._keys) > 0


class ShedLoad:
    """Refuses what all tasks would refuse, before it is read: a flood must not take the time of those who wait.

    Tokenizing waits in no queue, and passes.
    """

    def __init__(self, app: ASGIApp, tasks: Sequence[Task]) -> None:
        self._app, self._tasks = app, tasks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        queues = scope["type"] == "http" and scope["method"] == "POST" and not scope["path"].endswith(UNQUEUED_PATHS)
        if queues and all(task.is_full for task in self._tasks):
            if len(self._tasks) == 1:
                manifest = self._tasks[0].manifest
                observed().model, observed().task = manifest.name, manifest.task
            await error_response(ServerOverloaded())(scope, receive, send)
            return
        await self._app(scope, receive, send)


class LimitBody:
    """Reads the body before the routes do, and refuses one that is too large as soon as that is known."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app = app
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "0")
        is_too_large = announced.isdigit() and int(announced) > self._max_body_bytes
        try:
            body = None if is_too_large else await self._read(receive)
        except ClientDisconnect:
            return
        if body is None:
            error = TooLarge(f"the body is larger than {self._max_body_bytes} bytes", "body")
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive) -> bytes | None:
        """Return the body, or None once it is too large."""
        chunks: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunks.append(message.get("body", b""))
            size += len(chunks[-1])
            if size > self._max_body_bytes:
                return None
            more = bool(message.get("more_body", False))
        return b"".join(chunks)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a receive that gives the body first, and then what really comes: the disconnect."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay
