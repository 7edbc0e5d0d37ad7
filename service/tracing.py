"""Traces: the caller's goes on here (W3C `traceparent`), and spans go to a collector if there is one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from service.settings import SettingsError

if TYPE_CHECKING:  # the extra `otel` need not be there
    from opentelemetry.trace import Span as OpenSpan

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")  # W3C Trace Context, 3.2


class Span(Protocol):
    """What a request's span is told."""

    trace_id: str | None

    def note(self, **values: str | float) -> None:
        """Add what turned out meanwhile."""


class _Unrecorded:
    """The span of a request that goes to no collector; it knows the caller's trace."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        found = _TRACEPARENT.fullmatch(headers.get("traceparent", ""))
        self.trace_id = found[1] if found and set(found[1]) != {"0"} else None

    def note(self, **values: str | float) -> None:
        """Do nothing."""


class Tracing:
    """Makes a span for each request; without an endpoint they are not recorded.

    Raises `SettingsError` for an endpoint without the packages to reach it (extra `otel`).
    """

    def __init__(self, endpoint: str | None) -> None:
        self._recorder = _Recorder(endpoint) if endpoint else None

    @contextmanager
    def span(self, name: str, headers: Mapping[str, str]) -> Iterator[Span]:
        """Yield the span of a request with these headers."""
        if self._recorder is None:
            yield _Unrecorded(headers)
        else:
            with self._recorder.span(name, headers) as span:
                yield span

    def close(self) -> None:
        """Send what has not been sent."""
        if self._recorder is not None:
            self._recorder.close()


class _Recorder:
    """Spans on their way to a collector, by OTLP over HTTP."""

    def __init__(self, endpoint: str) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise SettingsError(
                f"otlp_endpoint is set, but {error.name} is missing: pip install 'trifold[otel]'"
            ) from None
        self._provider = TracerProvider(resource=Resource.create({"service.name": "trifold"}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        self._tracer = self._provider.get_tracer("trifold")

    @contextmanager
    def span(self, name: str, headers: Mapping[str, str]) -> Iterator[Span]:
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        caller = TraceContextTextMapPropagator().extract(dict(headers))
        with self._tracer.start_as_current_span(name, caller, SpanKind.SERVER) as span:
            yield _Recorded(span)

    def close(self) -> None:
        self._provider.shutdown()


class _Recorded:
    def __init__(self, span: OpenSpan) -> None:
        self._span = span
        self.trace_id: str | None = f"{span.get_span_context().trace_id:032x}"

    def note(self, **values: str | float) -> None:
        for name, value in values.items():
            self._span.set_attribute(f"trifold.{name}", value)
