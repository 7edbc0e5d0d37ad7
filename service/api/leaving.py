"""What becomes of requests that come to a service that is shutting down."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.middleware import error_response
from service.draining import Draining
from service.errors import IsDraining


class FinishRequests:
    """Holds the end of the service back until requests are answered, and refuses new ones once it is closed to them.

    Only what asks a model counts: probes, documents and metrics are answered until the end.
    """

    def __init__(self, app: ASGIApp, draining: Draining) -> None:
        self._app, self._draining = app, draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
        elif self._draining.is_closed:
            await error_response(IsDraining())(scope, receive, send)
        else:
            with self._draining.request():
                await self._app(scope, receive, send)
