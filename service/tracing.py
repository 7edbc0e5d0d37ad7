"""Traces: the caller's goes on here (W3C `traceparent`), and spans go to a collector if there is one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

import structlog

from service.settings import Settings
from service.settings_errors import SettingsError

if TYPE_CHECKING:  # the extra `otel` need not be there
    from opentelemetry.trace import Span as OpenSpan

# W3C Trace Context, 3.2: of later versions than 00 the fields that 00 has are read, and those behind them passed over.
_TRACEPARENT = re.compile(r"((?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2})(-.*)?")


class Carried(NamedTuple):
    """What goes with a request from the gateway to a replica."""

    request_id: str
    traceparent: str | None


class Span(Protocol):
    """What a request's span is told."""

    trace_id: str | None
    traceparent: str | None  # with which another process goes on with it

    def note(self, **values: str | float) -> None:
        """Add what turned out meanwhile."""

    def fail(self, error: Exception) -> None:
        """Add what was raised, and answered within."""


class _Unrecorded:
    """The span of a request that goes to no collector; it knows the caller's trace."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        found = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
        if found and found[2] == "00" and found[4]:
            found = None
        self.trace_id: str | None = found[3] if found else None
        self.traceparent: str | None = found[1] if found else None

    def note(self, **values: str | float) -> None:
        """Do nothing."""

    def fail(self, error: Exception) -> None:
        """Do nothing."""


class Tracing:
    """Makes a span for each request; they are recorded if there is a collector.

    Raises `SettingsError` for a collector without the packages to reach it (extra `otel`).
    """

    def __init__(self, endpoint: str | None, *, records: bool | None = None) -> None:
        records = bool(endpoint) if records is None else records
        self._recorder = _Recorder(endpoint) if records else None

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return what the settings and OpenTelemetry's own variables ask for; raises `SettingsError`."""
        return cls(settings.otlp_endpoint, records=settings.records_spans)

    @contextmanager
    def span(self, name: str, headers: Mapping[str, str], route: str | None = None) -> Iterator[Span]:
        """Yield the span of a request with these headers; its name and attributes have the route, never the path."""
        if self._recorder is None:
            yield _Unrecorded(headers)
        else:
            with self._recorder.span(name, headers, route) as span:
                yield span

    @contextmanager
    def carried_on(self, name: str, carried: Carried) -> Iterator[None]:
        """Go on with a request of another process: in a span of its own, and in the ids of what is logged meanwhile."""
        headers = {"traceparent": carried.traceparent} if carried.traceparent else {}
        with self.span(name, headers) as span:
            ids = {"request_id": carried.request_id, "trace_id": span.trace_id}
            bound = structlog.contextvars.bind_contextvars(**ids)
            try:
                yield
            finally:
                with suppress(ValueError):  # a generator that nobody reads any more is closed in another context
                    structlog.contextvars.reset_contextvars(**bound)

    def close(self) -> None:
        """Send what has not been sent."""
        if self._recorder is not None:
            self._recorder.close()


class _Recorder:
    """Spans on their way to a collector, by OTLP over HTTP."""

    def __init__(self, endpoint: str | None) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise SettingsError(
                f"spans are to go to a collector, but {error.name} is missing: pip install 'trifold-server[otel]', or "
                "-e '.[otel]' in a checkout"
            ) from None
        resource = Resource.create()  # with OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES
        if str(resource.attributes["service.name"]).startswith("unknown_service"):
            resource = resource.merge(Resource({"service.name": "trifold"}))
        self._provider = TracerProvider(resource=resource)  # the sampler is OTEL_TRACES_SAMPLER's
        try:
            self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        except ValueError as error:  # of OTEL_BSP_…, which do not go together
            raise SettingsError(f"OpenTelemetry refuses its own variables (OTEL_BSP_…): {error}") from None
        self._tracer = self._provider.get_tracer("trifold")

    @contextmanager
    def span(self, name: str, headers: Mapping[str, str], route: str | None) -> Iterator[Span]:
        from opentelemetry.trace import SpanKind, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        caller = TraceContextTextMapPropagator().extract(dict(headers))
        attributes = {"http.route": route} if route else {}
        span = self._tracer.start_span(name, caller, SpanKind.SERVER, attributes)
        try:
            yield _Recorded(span)
        except Exception as error:
            span.record_exception(error)
            span.set_status(StatusCode.ERROR)
            raise
        finally:
            span.end()

    def close(self) -> None:
        self._provider.shutdown()


class _Recorded:
    def __init__(self, span: OpenSpan) -> None:
        self._span, context = span, span.get_span_context()
        self.trace_id: str | None = f"{context.trace_id:032x}"
        self.traceparent: str | None = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"

    def note(self, **values: str | float) -> None:
        from opentelemetry.trace import StatusCode

        for name, value in values.items():
            self._span.set_attribute(f"trifold.{name}", value)
        code = str(values.get("code", ""))
        if code.isdecimal():
            self._span.set_attribute("http.response.status_code", int(code))
        if code.startswith("5"):
            self._span.set_status(StatusCode.ERROR)

    def fail(self, error: Exception) -> None:
        self._span.record_exception(error)
