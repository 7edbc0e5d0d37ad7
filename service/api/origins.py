"""Pages of other sites, whose requests a visitor's browser would send in the visitor's name and network."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.middleware import error_response
from service.errors import Forbidden


class RefuseCrossSite:
    """Refuses what a browser sends for a page of another site, by the headers that pages cannot forge.

    Browsers name the page's site in `Origin` with every request that is not a plain GET, and nearly all say
    `Sec-Fetch-Site`, over TLS and to localhost. Programs send neither, and pass. A link from elsewhere may be
    followed: the site it stands on sees nothing of the answer.

    A page's own server is let in, but its name proves little where no key is needed: who owns a name can point it at
    this machine once the page is loaded (DNS rebinding), and the browser then takes us for that page's server. So
    without keys only addresses and localhost count, which nobody can point elsewhere; a name must be an allowed origin.
    Such a page's plain GET to its own name has no Origin, and is answered: it sees which models there are and how busy
    they are, and has nothing computed.
    """

    def __init__(self, app: ASGIApp, allowed: Collection[str], *, trusts_names: bool) -> None:
        self._app, self._allowed, self._trusts_names = app, frozenset(allowed), trusts_names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        if scope["type"] == "http" and not self._may_come(scope["method"], Headers(scope=scope)):
            error = Forbidden(
                "pages of other sites may not use this service; TRIFOLD_ALLOWED_ORIGINS lists those that may"
            )
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _may_come(self, method: str, headers: Headers) -> bool:
        origin = headers.get("origin")
        if origin is not None:
            return origin.lower() in self._allowed or self._is_own(origin.lower(), headers.get("host", "").lower())
        return headers.get("sec-fetch-site") != "cross-site" or _follows_link(method, headers)

    def _is_own(self, origin: str, host: str) -> bool:
        # The scheme does not count: TLS ends before us.
        is_same = bool(host) and origin.partition("://")[2] == host
        return is_same and (self._trusts_names or _stays_here(host))


def _follows_link(method: str, headers: Headers) -> bool:
    wanted = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
    return method in {"GET", "HEAD"} and wanted == ("navigate", "document")


def _stays_here(host: str) -> bool:
    """Whether a host is an address, or a name that every browser resolves to its own machine."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        if name == "localhost" or name.endswith(".localhost"):
            return True
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
