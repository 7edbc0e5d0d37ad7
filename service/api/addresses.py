"""The addresses of models, `/models/<name>/…`: what comes there is for that model alone, wherever it is answered."""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

MODELS = "/models/"
_OF_REPLICA = re.compile(r"^/replicas/[^/]+(?=/models/)")  # see `service.replica_groups`
ADDRESSED = "trifold.model"  # of the scope: the model to whose address a request came


class ModelAddresses:
    """Mounts the whole app once more at each model's address, and says in the scope which model that is.

    Hugging Face's clients post to the address itself, without a slash at its end. It is taken for the root below it: a
    redirect would cost a second request. For the same reason a slash at a path's end is taken off. Where the app itself
    is mounted is Ray Serve's concern, and no client's.
    """

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app, self._names = app, frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        if scope["type"] == "http":
            name, below = self._split(scope)
            if name is not None:
                address = f"{MODELS}{name}"
                scope = {**scope, "root_path": address, "path": f"{address}{below.rstrip('/') or '/'}", ADDRESSED: name}
            elif below.endswith("/") and below.strip("/"):
                scope = {**scope, "path": scope["path"].rstrip("/")}
        await self._app(scope, receive, send)

    def _split(self, scope: Scope) -> tuple[str | None, str]:
        """Return the model to whose address a request came, if to any's, and the path below it."""
        path: str = scope["path"]
        if not path.startswith(MODELS):  # or the address is below that of a replica
            path = path.removeprefix(scope.get("root_path", ""))
        path = _OF_REPLICA.sub("", path)  # which comes to the gateway while the replica is away
        name, slash, below = path.removeprefix(MODELS).partition("/")
        return (name, slash + below) if path.startswith(MODELS) and name in self._names else (None, path)
