"""The page for people, at `/` for whoever asks for HTML: static files that ask the same API as everybody."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.addresses import ADDRESSED
from service.api.observing import route_path

FOLDER = Path(__file__).parent.parent / "page"
INDEX = "index.html"
BELOW = "/page/"  # the files' address
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Nothing but these files, and requests to this address: a hostile text that a model repeats can run and send nothing.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
# Asked for each time, and not sent again while it is the same; or kept, by an address that has the files' version.
ANEW, ONCE = {"Cache-Control": "no-cache"}, {"Cache-Control": "public, max-age=31536000, immutable"}
VERSION = re.compile(r"^[0-9a-f]{16}/")
VARY = {"Vary": "Accept"}  # of `/`, which answers programs with JSON


@dataclass(frozen=True)
class _File:
    content: bytes
    media_type: str
    etag: str


def page_files() -> dict[str, bytes]:
    """Return the contents of the page's files by their paths."""
    paths = sorted(path for path in FOLDER.rglob("*") if path.suffix in TYPES)
    return {path.relative_to(FOLDER).as_posix(): path.read_bytes() for path in paths}


def wants_html(accept: str) -> bool:
    """Whether a client names HTML among what it takes, as browsers do and programs do not."""
    for each in accept.lower().split(","):
        media_type, *parameters = (part.strip() for part in each.split(";"))
        if media_type == "text/html":
            return not any(part.startswith("q=0") and not part.strip("q=0.") for part in parameters)
    return False


class ShowPage:
    """Answers for the page's files; all else goes on.

    They hold nothing of the models and need no key, as the page is where a person types it. The index asks for them by
    addresses with the version of them all. Another version's, of a page that is open while the service is replaced, is
    answered with what there is, which no browser may keep.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        contents = page_files()
        self._version = f"{_digest(*contents.values())[:16]}/"
        contents[INDEX] = contents[INDEX].replace(b'="page/', f'="page/{self._version}'.encode())
        self._files: Mapping[str, _File] = {
            name: _File(content, TYPES[Path(name).suffix], f'"{_digest(content)[:32]}"')
            for name, content in contents.items()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        if scope["type"] == "http" and scope["method"] in {"GET", "HEAD"} and ADDRESSED not in scope:
            headers, path = Headers(scope=scope), route_path(scope)
            asked = path.removeprefix(BELOW) if path.startswith(BELOW) else ""
            name, more = VERSION.sub("", asked), ONCE if asked.startswith(self._version) else ANEW
            if path == "/" and wants_html(headers.get("accept", "")):
                name, more = INDEX, {**ANEW, **VARY}
            if name in self._files:
                await _answer(self._files[name], headers, more)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _digest(*contents: bytes) -> str:
    return hashlib.sha256(b"".join(contents)).hexdigest()


def _answer(file: _File, headers: Headers, more: Mapping[str, str]) -> Response:
    about = {**HEADERS, **more, "ETag": file.etag}
    known = {each.strip().removeprefix("W/") for each in headers.get("if-none-match", "").split(",")}
    if file.etag in known:
        return Response(status_code=304, headers=about)
    return Response(file.content, media_type=file.media_type, headers=about)
