"""API keys: who may come in, under which name, and how much of it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import re
import time
from urllib.parse import unquote_plus

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.allowances import Allowance, Clock
from service.api.bodies import BodyLimits, replay
from service.api.error_forms import LIBRETRANSLATE, ErrorForm
from service.api.middleware import error_response
from service.api.observing import LOOKS, PROBES, observed, route_path
from service.api.protocols.libretranslate import paths as libretranslate
from service.errors import RateLimited, ServiceError, Unauthorized
from service.keys import Key, configured_keys
from service.settings import Settings
from service.settings_errors import SettingsError
from service.tasks.task import ANONYMOUS

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0  # at the keys file, for a change
SCHEMES = ("bearer", "deepl-auth-key")
# In a JSON text a quote is escaped, so none of these lies within a text.
# Nothing is given back (++), or a body full of them would be read again from each of their characters.
_KEY_IN_JSON = re.compile(rb'"api_key"\s*+:\s*+(?P<key>"(?:[^"\\]++|\\.)++")')
MAX_WRITTEN = 512  # bytes of a key in JSON or a form
# Callers put a & before the form, so that the pattern begins with a literal: sought four times as fast.
_KEY_IN_FORM = re.compile(rb"&api_key=(?P<key>[^&]+)")


class KeyRing:
    """The keys that are let in, with what each may still ask; raises `SettingsError` for keys that are not valid.

    A keys file that changes is read again, at most a second after, by `watch` also while nobody asks: else a process
    could miss the version between two, and with it that a key is gone. One that is then wrong is told of in the log,
    and the keys of before stay.
    """

    def __init__(self, settings: Settings, clock: Clock = time.monotonic) -> None:
        self._settings, self._clock = settings, clock
        self._allowances: dict[bytes, Allowance] = {}  # by the key's digest
        self._seen = self._stamp()
        self._next_look = clock() + LOOK_EVERY_S
        self._reading: asyncio.Task[None] | None = None
        self._take(configured_keys(settings))

    async def find(self, given: str) -> Allowance | None:
        """Return what the owner of a key may ask; None for what is no key."""
        await self._refresh()
        if not given:  # nobody's, whatever hash the keys file has
            return None
        digest = hashlib.sha256(given.encode("utf-8", "surrogatepass")).digest()  # JSON has halves of pairs, too
        found = None
        for known, allowance in self._allowances.items():  # all, in constant time, so that timing tells nothing
            if hmac.compare_digest(digest, known):
                found = allowance
        return found

    async def watch(self) -> None:
        """Look at the file until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._refresh()

    def _take(self, keys: list[Key]) -> None:
        """Let in these keys from now on; what one has used up stays so, unless its limits are others now."""
        held = {allowance.key.name: allowance for allowance in self._allowances.values()}
        self._allowances = {
            key.digest: held[key.name].renewed(key) if key.name in held else Allowance(key, self._clock) for key in keys
        }

    async def _refresh(self) -> None:
        """Read the file again if it has changed; everybody waits for the one who reads, and nobody else reads."""
        if self._reading is None and self._clock() >= self._next_look:
            self._next_look = self._clock() + LOOK_EVERY_S
            stamp = self._stamp()
            if stamp != self._seen:
                self._seen = stamp
                self._reading = asyncio.create_task(self._read())
        if self._reading is not None:
            await asyncio.shield(self._reading)

    async def _read(self) -> None:
        try:
            self._take(await asyncio.to_thread(configured_keys, self._settings))
            logger.info("the keys file has changed", extra={"keys": len(self._allowances)})
        except SettingsError as error:
            logger.error("the keys file has changed and is wrong; the keys of before stay: %s", error)
        finally:
            self._reading = None

    def _stamp(self) -> tuple[int, int, int] | None:
        """Return what differs when the file does; None while there is none."""
        try:
            about = self._settings.api_keys_file and self._settings.api_keys_file.stat()
        except OSError:
            return None
        return (about.st_mtime_ns, about.st_size, about.st_ino) if about else None


class RequireKey:
    """Refuses requests without an API key, as `Authorization: Bearer …` or `X-API-Key`, and those beyond its limits.

    LibreTranslate's clients send it in the body or the query string: on its routes it is looked for there where no
    header has one, in a body as large and slow as any. Probes need none, nor does what says that a key is needed.
    """

    def __init__(self, app: ASGIApp, keys: KeyRing, body_limits: BodyLimits) -> None:
        self._app, self._keys, self._body_limits = app, keys, body_limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = route_path(scope)
        try:
            given, receive, form = await self._given(scope, path, receive)
        except ClientDisconnect:
            observed().has_left = True
            return
        except ServiceError as refused:
            await error_response(refused)(scope, receive, send)
            return
        observed().error_form = form or observed().error_form
        allowance = await self._keys.find(given)
        is_open = path in libretranslate.OPEN and observed().address is None  # a model's would tell that there is one
        if path in PROBES or is_open:  # probes say more to who has a key
            observed().client = allowance.key.name if allowance else ANONYMOUS
            await self._app(scope, receive, send)
            return
        if allowance is None:
            await error_response(_unauthorized(path))(scope, receive, send)
            return
        observed().client = allowance.key.name
        if path in LOOKS:  # once a second by the page, and cheap: the key's limits are for what models do
            await self._app(scope, receive, send)
            return
        await self._within(allowance, scope, receive, send)

    async def _given(self, scope: Scope, path: str, receive: Receive) -> tuple[str, Receive, ErrorForm | None]:
        """Return the key that a request brings, what gives its body, and the form of a refusal if the body tells it.

        Raises what reading a body raises.
        """
        given = _key_in_head(Headers(scope=scope))
        if given or path not in libretranslate.PATHS:
            return given, receive, None
        body = await self._body_limits.read(scope, receive)
        form = LIBRETRANSLATE if libretranslate.is_theirs(scope["query_string"], body) else None
        return key_in(scope["query_string"], body), replay(body, receive), form

    async def _within(self, allowance: Allowance, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request within the limits of its key."""

        async def telling(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(allowance.headers())
            await send(message)

        try:
            allowance.begin()
        except RateLimited as error:
            await error_response(error)(scope, receive, telling)
            return
        try:
            await self._app(scope, receive, telling)
        finally:
            allowance.end(observed().tokens)


def _unauthorized(path: str) -> Unauthorized:
    """Return the refusal of a request without a key, which names the ways that its route has for one."""
    ways = ["'Authorization: Bearer KEY'", "'X-API-Key: KEY'"]
    if path in libretranslate.PATHS:
        ways.append("api_key in the body or the query")
    if path.startswith("/v2/") and path != "/v2/rerank":  # which is Cohere's
        ways.insert(0, "'Authorization: DeepL-Auth-Key KEY'")
    return Unauthorized(f"a valid API key is needed, as {', '.join(ways[:-1])} or {ways[-1]}")


def _key_in_head(headers: Headers) -> str:
    """Return the key that a request's head brings, or something that is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return headers.get("x-api-key") or (token.strip() if scheme.lower() in SCHEMES else "")


def key_in(query: bytes, body: bytes) -> str:
    """Return the `api_key` of a query string, a form or a JSON object, which need not be read for it, or nothing."""
    found = _KEY_IN_FORM.search(b"&" + query) or _KEY_IN_JSON.search(body) or _KEY_IN_FORM.search(b"&" + body)
    if found is None:
        return ""
    if len(found["key"]) > MAX_WRITTEN:
        return ""
    text = found["key"].decode("utf-8", "replace")
    if found.re is _KEY_IN_FORM:
        return unquote_plus(text)
    try:
        return str(json.loads(text))
    except ValueError:  # an escape that is none
        return ""
