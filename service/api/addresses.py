"""The address of a model itself, to which Hugging Face's clients post: `/models/<name>`, without a slash at its end."""

from __future__ import annotations

import re

from starlette.types import ASGIApp, Receive, Scope, Send

_MODEL = re.compile("/models/[^/]+")


class ModelAddresses:
    """Takes a model's address for the root below it, which is a route; a redirect would cost a second request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        if scope["type"] == "http" and _MODEL.fullmatch(scope["path"]):
            scope = {**scope, "path": f"{scope['path']}/"}
        await self._app(scope, receive, send)
