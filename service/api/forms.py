"""Forms and query strings of the protocols whose clients send them: the routes see the JSON that they mean.

And images, which are no JSON whatever their client says of them.
"""

from __future__ import annotations

import asyncio
import json
import re
from urllib.parse import parse_qsl

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.bodies import replay
from service.api.calls import SHOWN
from service.api.error_forms import LIBRETRANSLATE
from service.api.middleware import error_response
from service.api.observing import observed, route_path
from service.api.protocols.huggingface.bodies import IMAGES, KINDS
from service.api.protocols.libretranslate import paths as libretranslate
from service.errors import NotJson, ServiceError, TooLarge, WrongForm
from service.json_values import BEGINNINGS, SPACE

FORM = "application/x-www-form-urlencoded"
IN_PARTS = "multipart/form-data"  # as a page's own script may send it
TAKE_FORMS = {"POST": libretranslate.TAKE_BODIES | {"/v2/translate"}, "GET": frozenset({"/v2/languages"})}
TAKE_IMAGES = frozenset({"/", "/pipeline/image-classification"})  # of Hugging Face's client, as the body itself
MAX_FIELDS = 1_024
SURROGATE = re.compile("[\ud800-\udfff]")
SHORT = 10_000  # bytes that are read in a millisecond


class ReadForms:
    """Turns a form, or a query string without a body, into a JSON object; a field that comes again becomes a list.

    A GET with a form, as DeepL's own client sends it, gets it as its query string.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        path = route_path(scope) if scope["type"] == "http" else ""
        if path in TAKE_IMAGES and scope["method"] == "POST":
            await self._with_image(scope, receive, send)
            return
        takes_form = path in TAKE_FORMS.get(scope.get("method", ""), ())
        kind = _kind_of_body(scope) if takes_form else ""
        if not takes_form or (kind == IN_PARTS and path in libretranslate.REFUSED):  # whatever these are asked
            await self._app(scope, receive, send)
            return
        body = (await receive()).get("body", b"")
        if kind == IN_PARTS:
            _answer_as_its_protocol(path)
            await error_response(WrongForm(f"the body is {IN_PARTS}; send JSON or {FORM}", "body"))(
                scope, receive, send
            )
            return
        is_form = kind == FORM
        if body[:1] == b"{" or not (is_form if body else scope["query_string"]):
            await self._app(scope, replay(body, receive), send)
            return
        encoded = b"&".join(filter(None, (scope["query_string"], body)))
        if scope["method"] == "GET":
            await self._app({**scope, "query_string": encoded}, replay(b"", receive), send)
            return
        _answer_as_its_protocol(path)
        try:
            translated = as_json(encoded) if len(encoded) <= SHORT else await asyncio.to_thread(as_json, encoded)
        except ServiceError as error:
            await error_response(error)(scope, receive, send)
            return
        scope = {**scope, "headers": list(scope["headers"])}
        headers = MutableHeaders(scope=scope)
        headers["content-type"], headers["content-length"] = "application/json", str(len(translated))
        await self._app(scope, replay(translated, receive), send)

    async def _with_image(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Say of an image that it is one, which clients call JSON where they have nothing but bytes."""
        body = (await receive()).get("body", b"")
        answer: ASGIApp = self._app
        if body.startswith(IMAGES):
            scope = {**scope, "headers": list(scope["headers"])}
            MutableHeaders(scope=scope)["content-type"] = "application/octet-stream"
        elif not body.isascii() and not BEGINNINGS.issuperset(body.lstrip(SPACE)[:1]):
            answer = error_response(NotJson(f"the body is neither JSON nor an image ({KINDS})", "body"))
        await answer(scope, replay(body, receive), send)


def _kind_of_body(scope: Scope) -> str:
    return Headers(scope=scope).get("content-type", "").partition(";")[0].strip().lower()


def _answer_as_its_protocol(path: str) -> None:
    """Let errors of a form be LibreTranslate's on the routes that are native ones, too."""
    if path in libretranslate.TAKE_BODIES:
        observed().error_form = LIBRETRANSLATE


def as_json(encoded: bytes) -> bytes:
    """Return a form's fields as a JSON object; raises `TooLarge` if they are too many, `WrongForm` if not in UTF-8."""
    # Bytes that are not UTF-8 become surrogates, which no text has, so that the field can be named.
    text = encoded.decode("utf-8", "surrogateescape")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="surrogateescape")
    except ValueError:
        raise TooLarge(f"the form has more than {MAX_FIELDS} fields", "body") from None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        if SURROGATE.search(name + value):
            field = SURROGATE.sub("?", name[:SHOWN])
            raise WrongForm(f"{field} is not in UTF-8, as a form has to be", field)
        fields.setdefault(name, []).append(value)
    return json.dumps({name: values[0] if len(values) == 1 else values for name, values in fields.items()}).encode()
