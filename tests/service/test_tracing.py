from __future__ import annotations

import builtins
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
import structlog
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from service.settings import Settings
from service.settings_errors import SettingsError
from service.tracing import Carried, Tracing

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """An OTLP collector; its address, and what it was sent."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the library's name
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces", bodies
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_span_goes_on_with_the_callers_trace(collector: tuple[str, list[bytes]]) -> None:
    address, bodies = collector
    tracing = Tracing(address)
    with tracing.span("POST /generate", HEADERS, "/generate") as span:
        span.note(model="stories", code="200")
        assert span.trace_id == TRACE
    tracing.close()

    sent = ExportTraceServiceRequest.FromString(bodies[0]).resource_spans[0].scope_spans[0].spans[0]
    assert sent.name == "POST /generate"
    assert (sent.trace_id.hex(), sent.parent_span_id.hex()) == (TRACE, PARENT)
    noted = {attribute.key: attribute.value.string_value for attribute in sent.attributes}
    assert noted == {
        **{"trifold.model": "stories", "trifold.code": "200", "http.route": "/generate"},
        "http.response.status_code": "",  # a number
    }


def test_a_span_has_what_was_raised_and_answered_within(collector: tuple[str, list[bytes]]) -> None:
    address, bodies = collector
    tracing = Tracing(address)
    with tracing.span("POST /generate", {}) as span:
        span.fail(ZeroDivisionError("by nothing"))
    tracing.close()

    sent = ExportTraceServiceRequest.FromString(bodies[0]).resource_spans[0].scope_spans[0].spans[0]
    noted = {attribute.key: attribute.value.string_value for attribute in sent.events[0].attributes}
    assert (noted["exception.type"], noted["exception.message"]) == ("ZeroDivisionError", "by nothing")


def test_opentelemetrys_own_variables_say_where_spans_go_and_what_they_are_called(
    collector: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, bodies = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address.removesuffix("/v1/traces"))
    monkeypatch.setenv("OTEL_SERVICE_NAME", "translations")
    tracing = Tracing.of(Settings())
    with tracing.span("POST /generate", {}) as span:
        assert span.traceparent is not None
        with tracing.carried_on("predict", Carried("abc-1", span.traceparent)):
            ids = structlog.contextvars.get_contextvars()
    tracing.close()

    (sent,) = [resource for body in bodies for resource in ExportTraceServiceRequest.FromString(body).resource_spans]
    names = {attribute.key: attribute.value.string_value for attribute in sent.resource.attributes}
    replica, gateway = sent.scope_spans[0].spans
    assert names["service.name"] == "translations"
    assert (replica.trace_id, replica.parent_span_id) == (gateway.trace_id, gateway.span_id)
    assert ids == {"request_id": "abc-1", "trace_id": gateway.trace_id.hex()}
    assert structlog.contextvars.get_contextvars() == {}


def test_the_sampler_is_opentelemetrys_and_a_trace_that_is_left_out_is_still_known(
    collector: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, bodies = collector
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    tracing = Tracing(address)
    with tracing.span("POST /generate", {}) as span:
        assert span.trace_id is not None and span.traceparent is not None
        assert int(span.traceparent.rpartition("-")[2], 16) & 1 == 0  # not sampled
    with tracing.span("POST /generate", HEADERS):
        pass  # the caller's is recorded
    tracing.close()

    (sent,) = ExportTraceServiceRequest.FromString(bodies[0]).resource_spans[0].scope_spans[0].spans
    assert len(bodies) == 1 and sent.trace_id.hex() == TRACE


@pytest.mark.parametrize("variable", [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")])
def test_spans_can_be_switched_off(variable: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    before = Settings().records_spans
    monkeypatch.setenv(*variable)

    assert (before, Settings().records_spans) == (True, False)


def test_a_protocol_that_is_not_spoken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")

    with pytest.raises(SettingsError, match="grpc is not spoken here"):
        Tracing.of(Settings())


@pytest.mark.parametrize(
    ("headers", "trace"),
    [
        (HEADERS, TRACE),
        ({}, None),
        ({"traceparent": "rubbish"}, None),
        ({"traceparent": f"00-{'0' * 32}-{PARENT}-01"}, None),  # which the standard forbids, as the next three
        ({"traceparent": f"00-{TRACE}-{'0' * 16}-01"}, None),
        ({"traceparent": f"ff-{TRACE}-{PARENT}-01"}, None),
        ({"traceparent": f"00-{TRACE}-{PARENT}-01-more"}, None),
        ({"traceparent": f"01-{TRACE}-{PARENT}-01-more"}, TRACE),  # of a version to come
    ],
)
def test_without_a_collector_the_callers_trace_is_still_known(headers: dict[str, str], trace: str | None) -> None:
    with Tracing(None).span("POST /generate", headers) as span:
        assert span.trace_id == trace


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("opentelemetry.exporter"):
            raise ImportError("no", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SettingsError, match=r"pip install 'trifold-server\[otel\]'"):
        Tracing("http://127.0.0.1:4318/v1/traces")
