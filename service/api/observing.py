"""Every request is counted, logged and traced, once, where it comes in, by what it turned out to be about."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from uuid import uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.addresses import ADDRESSED
from service.api.error_forms import NATIVE, ErrorForm, error_form
from service.errors import InternalError, NotReady, ServiceError
from service.metrics import Metrics
from service.schemas import (
    AnyEvent,
    GenerateEvent,
    Response,
    SummarizeEvent,
    TranslateEvent,
    TranslateResponse,
    Usage,
)
from service.spending import SPENDING, Spending
from service.tasks.task import ANONYMOUS
from service.tracing import Span, Tracing

logger = logging.getLogger(__name__)

CLIENT_LEFT = "499"  # the code that nginx made usual for a client that left before its answer
REFUSED = "429"
UNKNOWN = "unknown"
OTHER = "other"  # of paths that are no routes
PROBES = ("/health", "/ready")  # of load balancers and orchestrators: without keys, limits and spans
LOOKS = ("/metrics", "/live")  # at the service, by who has a key, again and again: outside its limits
UNTRACED = (*PROBES, *LOOKS)
METHODS = ("GET", "HEAD", "POST", "OPTIONS")  # a client may send any word as one
MAX_PATH = 200  # characters of a path that a line of the log shows
OF_OURS = (InternalError.code, NotReady.code)  # reasons for which nobody pays
_SAFE_ID = re.compile(r"[A-Za-z0-9_.:/+=-]{1,128}")  # what goes back into a header and into the logs


@dataclass
class Observed:
    """What is known of the request in progress; routes and error answers fill it in."""

    address: str | None = None  # the model to whose address it came, for which alone it is
    model: str = UNKNOWN
    task: str = UNKNOWN
    client: str = ANONYMOUS  # the name of the API key that came with it
    id: str = ""  # in the logs, and in the answers of protocols that number them
    nonce: str = field(default_factory=lambda: uuid4().hex)  # in ids that are unique, though callers repeat theirs
    answered_tokens: int | None = None  # of the prompt and the completion, as the answer says once it is there
    pieces: int = 0  # of a stream that were sent, each a token or more
    spending: Spending = field(default_factory=Spending)  # for it, in this process
    has_left: bool = False  # the client, while it sent its body
    reason: str | None = None  # the error's code
    failure: Exception | None = None  # that nobody reckoned with
    error_status: int | None = None  # of what ended an answer that had begun with another status
    error_form: ErrorForm = NATIVE  # of the protocol in which it came
    traceparent: str | None = None  # of its span, or of the caller's where it has none

    def break_off(self, error: ServiceError, failure: Exception | None = None) -> None:
        """Note why an answer that has begun ends: it counts by that, whatever status it began with."""
        self.reason, self.error_status, self.failure = error.code, self.error_form.status(error), failure

    @property
    def tokens(self) -> int:
        """Tokens to charge: the answer's; of one that was cut, by its client or the deadline, what was computed.

        That is nothing where the failure is ours. Of what another process computes only the pieces that it sent are
        known here.
        """
        if self.answered_tokens is not None:
            return self.answered_tokens
        return max(self.pieces, 0 if self.reason in OF_OURS else self.spending.tokens)

    def count(self, answer: Response | AnyEvent) -> None:
        """Take the tokens from an answer: of a stream its last event has them."""
        match answer:
            case GenerateEvent() | SummarizeEvent() | TranslateEvent():  # first, as most are
                self.pieces += 1
            case Response(usage=Usage() as usage):  # type: ignore[misc]  # whichever of its kinds has one
                self.answered_tokens = usage.prompt_tokens + usage.completion_tokens
            case Response():
                self.answered_tokens = 0

    def count_part(self, answers: Iterable[TranslateResponse]) -> None:
        """Take the tokens of those answers of several that are there, while the others are asked for.

        Who leaves now, or is refused the next, pays what was computed, of which a gateway knows the answers alone.
        """
        self.answered_tokens = None
        answered = sum(each.usage.prompt_tokens + each.usage.completion_tokens for each in answers)
        self.spending.tokens = max(self.spending.tokens, answered)


_observed: ContextVar[Observed | None] = ContextVar("observed", default=None)


def observed() -> Observed:
    """Return the request in progress; outside of one, something that nobody looks at."""
    return _observed.get() or Observed()


def route_path(scope: Scope) -> str:
    """Return the path below where the app is mounted: at a model's address, or at the root."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


class ObserveRequests:
    """Counts, logs and traces requests for a model, and those refused or not sent to their end; probes pass unseen.

    The caller's `X-Request-ID` goes back with the answer and into the logs; a request without one is given one. Spans
    are named by the routes that there are, not by what clients make up.
    """

    def __init__(
        self, app: ASGIApp, metrics: Metrics, tracing: Tracing, routes: Collection[str], *, returns_ids: bool
    ) -> None:
        self._app, self._metrics, self._tracing, self._returns_ids = app, metrics, tracing, returns_ids
        self._untraced = Tracing(None)
        self._routes = frozenset(routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: D102  # ASGI
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        request_id = given if _SAFE_ID.fullmatch(given) else uuid4().hex
        request = Observed(scope.get(ADDRESSED), id=request_id, error_form=error_form(route_path(scope)))
        code, is_whole = CLIENT_LEFT, False
        _observed.set(request)
        SPENDING.set(request.spending)
        started = time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal code, is_whole
            if message["type"] == "http.response.start":
                code = str(message["status"])
                if self._returns_ids:
                    MutableHeaders(scope=message)["X-Request-ID"] = request_id
            await send(message)
            if message["type"] == "http.response.body":
                is_whole = not message.get("more_body", False)

        route = self._route(scope)
        with (
            self._metrics.in_progress.labels(route or OTHER).track_inprogress(),
            self._span(scope, route, headers) as span,
            structlog.contextvars.bound_contextvars(request_id=request_id, trace_id=span.trace_id),
        ):
            request.traceparent = span.traceparent
            try:
                await self._app(scope, receive, watched)
            except Exception:  # answered further out
                request.reason, code, is_whole = InternalError.code, str(InternalError.status), True
                raise
            finally:
                if route_path(scope) in PROBES and code.startswith("5"):
                    self._metrics.probes_failed.inc()
                is_told = request.reason is not None or request.model != UNKNOWN or request.has_left
                if is_told and route_path(scope) not in PROBES:
                    told = str(request.error_status or code) if is_whole else CLIENT_LEFT
                    self._tell(scope, request, told, time.perf_counter() - started, span)

    def _route(self, scope: Scope) -> str | None:
        """Return the route of a request, which is a path below a model's address, or None where there is none."""
        path = route_path(scope)
        return path if path in self._routes else None

    def _span(self, scope: Scope, route: str | None, headers: Headers) -> AbstractContextManager[Span]:
        method = scope["method"] if scope["method"] in METHODS else "HTTP"
        tracing = self._untraced if route_path(scope) in UNTRACED else self._tracing
        return tracing.span(f"{method} {route}" if route else method, headers, route)

    def _tell(self, scope: Scope, request: Observed, code: str, seconds: float, span: Span) -> None:
        metrics = self._metrics
        is_known = request.model != UNKNOWN
        if not is_known and request.address is not None:  # it was refused before it was read
            request.model = request.address
        if request.reason is not None:
            metrics.rejections.labels(request.model, request.reason).inc()
        if code == CLIENT_LEFT and request.reason is None and is_known:
            metrics.cancellations.labels(request.model).inc()
        metrics.requests.labels(request.model, request.task, code).inc()
        if request.client != ANONYMOUS:
            metrics.client_requests.labels(request.client, code).inc()
            metrics.client_tokens.labels(request.client).inc(request.tokens)
        if code != REFUSED:  # in no time: they would hide how long the others take
            metrics.request_seconds.labels(request.model, request.task).observe(seconds)
        about: dict[str, str | float] = {"model": request.model, "task": request.task, "code": code}
        if request.client != ANONYMOUS:
            about["client"] = request.client
        if request.reason is not None:
            about["reason"] = request.reason
        span.note(**about)
        if request.failure is not None:
            span.fail(request.failure)
        where = {"method": scope["method"], "path": _printable(scope["path"][:MAX_PATH]), "seconds": round(seconds, 6)}
        logger.info("request", extra={**where, **about})


def _printable(path: str) -> str:
    """Return a path with what is not to be printed as escapes: a terminal would do what it says."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in path)
