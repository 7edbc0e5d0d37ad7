"""Answers to errors, and the innermost middleware: HEAD, failures, a full queue. It buffers no streams."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.observing import observed
from service.errors import InternalError, ServerOverloaded, ServiceError
from service.tasks.task import Task

logger = logging.getLogger(__name__)


def error_response(error: ServiceError) -> JSONResponse:
    """Return an error as the client gets it, in its protocol's form, and let it be counted."""
    observed().reason, form = error.code, observed().error_form
    return JSONResponse(form.body(error), form.status(error), headers=error.headers())


def unforeseen(error: Exception) -> JSONResponse:
    """Log what nobody reckoned with, and return what the client gets of it."""
    logger.error("a request failed", exc_info=error)
    observed().failure = error
    return error_response(InternalError("the server failed on this request"))


class AnswerHead:
    """Answers HEAD as GET, without the body (RFC 9110, 9.3.2): monitors and load balancers ask so."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self._app({**scope, "method": "GET"}, receive, without_body)


class AnswerUnforeseen:
    """Answers what a route raises and nobody reckoned with, behind everything that adds headers to answers.

    Starlette answers it outside of all middleware: a page of another site could not read that its request has failed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        has_begun = False

        async def noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = has_begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception as error:
            if scope["type"] != "http" or has_begun:
                raise
            await unforeseen(error)(scope, receive, send)


class ShedLoad:
    """Refuses what every model that a request may be for would refuse, before it is read.

    A flood must not take the time of those who wait.
    """

    def __init__(self, app: ASGIApp, tasks: Iterable[Task]) -> None:
        self._app, self._tasks = app, tasks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        asked = list(self._tasks) if scope["type"] == "http" and scope["method"] == "POST" else []
        if asked and all(task.is_full_for(observed().client) for task in asked):
            if len(asked) == 1:
                manifest = asked[0].manifest
                observed().model, observed().task = manifest.name, manifest.task
            await error_response(ServerOverloaded())(scope, receive, send)
            return
        await self._app(scope, receive, send)
