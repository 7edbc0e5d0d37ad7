"""Counting requests: one of each, where it comes in, by what it turned out to be about."""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.metrics import Metrics

LEFT = "499"  # the code that nginx made usual for a client that left before its answer
UNKNOWN = "unknown"


@dataclass
class Counted:
    """What is known of the request in progress; routes and error answers fill it in."""

    model: str = UNKNOWN
    task: str = UNKNOWN
    reason: str | None = None  # the error's code


_counted: ContextVar[Counted | None] = ContextVar("counted", default=None)


def counted() -> Counted:
    """Return the request in progress; outside of one, something that nobody looks at."""
    return _counted.get() or Counted()


class CountRequests:
    """Counts requests for a model, and refused ones; probes and documents are not counted."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request, code, is_whole = Counted(), LEFT, False
        _counted.set(request)
        started = time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal code, is_whole
            await send(message)
            if message["type"] == "http.response.start":
                code = str(message["status"])
            elif message["type"] == "http.response.body":
                is_whole = not message.get("more_body", False)

        try:
            await self._app(scope, receive, watched)
        finally:
            self._count(request, code if is_whole else LEFT, time.perf_counter() - started)

    def _count(self, request: Counted, code: str, seconds: float) -> None:
        metrics = self._metrics
        if request.reason is not None:
            metrics.rejections.labels(request.model, request.reason).inc()
        elif request.model == UNKNOWN:
            return
        if code == LEFT:
            metrics.cancellations.labels(request.model).inc()
        metrics.requests.labels(request.model, request.task, code).inc()
        metrics.request_seconds.labels(request.model, request.task).observe(seconds)
