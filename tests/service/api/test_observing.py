"""What metrics and logs tell of requests, and of the engine's work behind them."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from starlette.types import Message

from service import __version__
from service.api.bodies import BodyLimits, LimitBody
from service.api.middleware import AnswerUnforeseen
from service.api.observing import ObserveRequests
from service.errors import InternalError
from service.logs import LOGGERS, configure_logs
from service.metrics import Metrics
from service.metrics_engine import FLUSH_S
from service.schemas import GenerateEvent
from service.tasks.task import LocalTask
from service.tracing import Span, Tracing
from tests.service.api.conftest import OpenClient, events_of, post, series


async def scrape(client: httpx.AsyncClient) -> dict[str, float]:
    await asyncio.sleep(FLUSH_S * 1.5)
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    return series(response.text)


async def test_requests_steps_and_tokens_are_counted(open_client: OpenClient) -> None:
    async with open_client("stories", "sentiment") as client:
        await post(client, "/generate", prompt=["Once upon a time"] * 2, max_tokens=9, temperature=0, stop_ids=[])
        await events_of(client, "/generate", prompt="The dog", max_tokens=5, temperature=0)
        await post(client, "/classify", input=["good", "The film was not so good."])
        seen = await scrape(client)

    assert seen['requests_total{code="200",model="stories",task="generate"}'] == 2
    assert seen['request_seconds_count{model="sentiment",task="classify"}'] == 1
    tokens = seen['generated_tokens_total{model="stories"}']
    assert seen['inter_token_seconds_count{model="stories"}'] == tokens - 3
    assert seen['time_to_first_token_seconds_count{model="stories"}'] == 3
    assert seen['queue_seconds_count{model="stories"}'] == 3 and seen['queue_seconds_count{model="sentiment"}'] == 2
    assert seen['batch_tokens_sum{model="stories",phase="decode"}'] == tokens
    assert seen['step_seconds_count{model="stories",phase="prefill"}'] >= 1
    assert seen['batch_rows_sum{model="sentiment",phase="encode"}'] == 2
    assert 0 < seen['padding_ratio_sum{model="sentiment",phase="encode"}'] < 1
    assert seen['prefix_cache_queries_total{model="stories"}'] > seen['prefix_cache_hits_total{model="stories"}']
    assert seen['kv_slots{model="stories"}'] == 64 and seen['kv_slots_used{model="stories"}'] == 0
    assert seen['sequences_running{model="stories"}'] == seen['sequences_waiting{model="stories"}'] == 0
    of_stories = 'application="stories",family="trifold",model="stories",precision="float32",task="generate"'
    assert seen[f"model_info{{{of_stories}}}"] == 1
    assert seen['model_load_seconds{model="stories"}'] > 0
    assert seen['process_resident_memory_bytes{model="stories"}'] > 1e7
    assert seen['process_heap_bytes{model="stories"}'] > 1e6
    assert seen['prompt_length_tokens_count{model="stories"}'] == 3
    assert seen['output_length_tokens_sum{model="stories"}'] == tokens
    assert seen['finished_sequences_total{model="stories",reason="length"}'] == 3
    assert seen['time_per_output_token_seconds_count{model="stories"}'] == 3
    assert seen['requests_in_progress{route="/metrics"}'] == 1 and seen['requests_in_progress{route="/generate"}'] == 0
    assert [name for name in seen if name.startswith("build_info{") and f'version="{__version__}"' in name]
    assert abs(seen['engine_last_step_timestamp_seconds{model="stories"}'] - time.time()) < 60


async def test_refusals_are_counted_by_their_reason(open_client: OpenClient) -> None:
    async with open_client("stories", settings={"api_keys": ["key"]}) as client:
        await client.post("/generate", json={"prompt": "x"})
        headers = {"X-API-Key": "key"}
        await client.post("/generate", json={"prompt": "dog " * 900}, headers=headers)
        await client.post("/generate", json={"model": "poems", "prompt": "x"}, headers=headers)
        await client.post("/models/stories/generate", json={"prompt": "x", "max_tokens": -1}, headers=headers)
        await asyncio.sleep(FLUSH_S)
        seen = series((await client.get("/metrics", headers=headers)).text)

    assert seen['rejections_total{model="unknown",reason="unauthorized"}'] == 1
    assert seen['rejections_total{model="stories",reason="invalid_request"}'] == 2
    assert seen['rejections_total{model="unknown",reason="not_found"}'] == 1
    assert seen['requests_total{code="422",model="stories",task="generate"}'] == 1
    assert seen['requests_total{code="422",model="stories",task="unknown"}'] == 1  # at its address, before it was read


async def test_a_client_that_leaves_is_counted(open_client: OpenClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.metrics_engine.FLUSH_S", 0.01)
    async with open_client("stories") as client:
        request = asyncio.create_task(client.post("/generate", json={"prompt": "Once", "n": 64, "max_tokens": 120}))
        while not (await client.get("/live")).json()["models"]["stories"]["running"]:
            assert not request.done()
            await asyncio.sleep(0.01)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
        seen = await scrape(client)

    assert seen['cancellations_total{model="stories"}'] == 1
    assert seen['requests_total{code="499",model="stories",task="generate"}'] == 1


async def test_probes_and_scrapes_are_not_requests(open_client: OpenClient) -> None:
    async with open_client("stories") as client:
        for path in ("/health", "/ready", "/metrics", "/docs"):
            await client.get(path)
        seen = await scrape(client)

    assert not any(value for name, value in seen.items() if name.startswith("requests_total"))


async def test_a_probe_that_fails_is_no_request_either(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_client("stories") as client:
        monkeypatch.setattr(LocalTask, "is_progressing", False)
        refused = await client.get("/ready")
        seen = await scrape(client)

    assert refused.status_code == 503
    assert seen["probes_failed_total{}"] == 1
    told = ("requests_total", "rejections_total", "request_seconds_count")
    assert not any(value for name, value in seen.items() if name.startswith(told))


async def test_what_should_not_happen_to_a_model_is_counted_from_0_on(open_client: OpenClient) -> None:
    async with open_client("stories") as client:
        seen = await scrape(client)

    of_failures = [f'requests_total{{code="{code}",model="stories",task="generate"}}' for code in (500, 503, 504)]
    refused = 'rejections_total{model="stories",reason="overloaded"}'
    assert [seen[name] for name in (*of_failures, refused, 'cancellations_total{model="stories"}')] == [0] * 5


async def test_what_was_refused_at_once_does_not_hide_how_long_others_take(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_client("sentiment") as client:
        await client.post("/classify", json={"input": "good"})
        monkeypatch.setattr(LocalTask, "is_full_for", lambda *_: True)
        refused = await client.post("/classify", json={"input": "good"})
        seen = await scrape(client)

    assert refused.status_code == 429
    assert seen['requests_total{code="429",model="sentiment",task="classify"}'] == 1
    assert seen['request_seconds_count{model="sentiment",task="classify"}'] == 1


async def test_explanations_are_a_task_of_their_own(open_client: OpenClient) -> None:
    async with open_client("sentiment") as client:
        answer = await client.post("/explain", json={"input": "good"})
        seen = await scrape(client)

    assert answer.status_code == 200, answer.text
    assert seen['request_seconds_count{model="sentiment",task="explain"}'] == 1


async def test_a_request_that_fails_is_counted_as_ours(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalTask, "predict", lambda *_: 1 / 0)
    async with open_client("stories") as client:
        response = await client.post("/generate", json={"prompt": "Once"})
        seen = await scrape(client)

    assert response.status_code == 500
    assert seen['requests_total{code="500",model="stories",task="generate"}'] == 1
    assert seen['rejections_total{model="stories",reason="internal_error"}'] == 1


@pytest.mark.parametrize("error", [InternalError("no"), ZeroDivisionError()], ids=["told", "unforeseen"])
@pytest.mark.parametrize("path", ["/generate", "/v1/completions"])
async def test_a_stream_that_breaks_off_counts_by_its_error(
    open_client: OpenClient, monkeypatch: pytest.MonkeyPatch, path: str, error: Exception
) -> None:
    async def breaks(*_: object) -> AsyncGenerator[GenerateEvent, None]:
        yield GenerateEvent(index=0, text="a")
        raise error

    monkeypatch.setattr(LocalTask, "stream", breaks)
    async with open_client("stories") as client:
        answer = await client.post(path, json={"prompt": "Once", "stream": True})
        seen = await scrape(client)

    assert answer.status_code == 200 and ("event: error" in answer.text) == (path == "/generate")
    assert seen['requests_total{code="500",model="stories",task="generate"}'] == 1
    assert seen['rejections_total{model="stories",reason="internal_error"}'] == 1


TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.fixture
def logged() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Let this process log as a replica does; return what was logged since the last look."""
    stream = io.StringIO()
    configure_logs(stream=stream)

    def take() -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in stream.getvalue().splitlines()]
        stream.truncate(stream.seek(0))
        return lines

    yield take
    for name in LOGGERS:
        logging.getLogger(name).handlers = []
        logging.getLogger(name).propagate = True


async def test_a_request_is_one_line_of_json(
    open_client: OpenClient, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    headers = {"X-Request-ID": "abc-1", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    async with open_client("stories") as client:
        answer = await client.post("/generate", json={"prompt": "Once", "max_tokens": 2}, headers=headers)
        await client.get("/health")
        (line,) = logged()
        await client.post("/generate", json={"prompt": "Once", "max_tokens": 0}, headers={"X-Request-ID": "bad id\t"})
        (refused,) = logged()

    assert answer.headers["X-Request-ID"] == line["request_id"] == "abc-1"
    assert line["trace_id"] == TRACE and line["level"] == "info" and line["timestamp"].endswith("Z")
    assert (line["method"], line["path"], line["model"], line["code"]) == ("POST", "/generate", "stories", "200")
    assert 0 < line["seconds"] < 60
    assert refused["reason"] == "invalid_request" and refused["code"] == "422"
    assert re.fullmatch("[0-9a-f]{32}", refused["request_id"])  # what is no id is replaced
    assert refused["trace_id"] is None
    assert "Once" not in json.dumps([line, refused])  # prompts are nobody's business


async def test_a_request_with_a_key_is_logged_by_the_keys_name(
    open_client: OpenClient, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    async with open_client("stories", settings={"api_keys": ["first", "s3cret"]}) as client:
        for key in ("s3cret", "wr0ng"):
            await client.post("/generate", json={"prompt": "Once", "max_tokens": 1}, headers={"X-API-Key": key})
    lines = logged()

    assert [line.get("client") for line in lines] == ["key-2", None]
    assert "s3cret" not in json.dumps(lines) and "wr0ng" not in json.dumps(lines)


class Spans(Tracing):
    """Keeps the names of the spans it was asked for, and what was raised within."""

    def __init__(self) -> None:
        super().__init__(None)
        self.names: list[str] = []
        self.failures: list[Exception] = []

    @contextmanager
    def span(self, name: str, headers: Mapping[str, str], route: str | None = None) -> Iterator[Span]:
        self.names.append(name)
        with super().span(name, headers, route) as span:
            span.fail = self.failures.append  # type: ignore[assignment, method-assign]  # of this one alone
            yield span


async def test_what_a_route_raises_is_answered_and_stands_in_the_span() -> None:
    async def fail(*_: object) -> None:
        raise ZeroDivisionError

    async def nothing(*_: object) -> None:
        pass

    spans = Spans()
    observe = ObserveRequests(AnswerUnforeseen(fail), Metrics(), spans, ["/generate"], returns_ids=True)
    scope = {"type": "http", "method": "POST", "path": "/generate", "headers": []}
    await observe(scope, nothing, nothing)  # type: ignore[arg-type]  # nothing is received

    assert [type(failure) for failure in spans.failures] == [ZeroDivisionError]


async def test_spans_are_named_by_routes_and_not_by_what_clients_make_up_and_probes_have_none() -> None:
    async def nothing(*_: object) -> None:
        pass

    spans = Spans()
    observe = ObserveRequests(nothing, Metrics(), spans, ["/generate", "/health"], returns_ids=True)
    for method, path, mount in (
        ("POST", "/generate", ""),
        ("POST", "/models/stories/generate", "/models/stories"),
        ("POST", "/card/4111-1111", ""),
        ("MADE-UP", "/generate", ""),
        ("GET", "/health", ""),
        ("GET", "/models/stories/ready", "/models/stories"),
    ):
        scope = {"type": "http", "method": method, "path": path, "root_path": mount, "headers": []}
        await observe(scope, nothing, nothing)  # type: ignore[arg-type]  # nothing is received

    assert spans.names == ["POST /generate", "POST /generate", "POST", "HTTP /generate"]


async def test_every_route_is_one_that_spans_are_named_by(open_client: OpenClient, monkeypatch: Any) -> None:
    routes: list[str] = []
    make = ObserveRequests.__init__

    def kept(self: ObserveRequests, *rest: Any, **named: Any) -> None:
        routes.extend(named["routes"])
        make(self, *rest, **named)

    monkeypatch.setattr(ObserveRequests, "__init__", kept)
    async with open_client("stories") as client:
        documented = (await client.get("/openapi.json")).json()["paths"]

    assert set(documented) <= set(routes)


async def test_a_failures_log_names_its_request(
    open_client: OpenClient, logged: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(LocalTask, "stream", broken)
    monkeypatch.setattr(LocalTask, "predict", broken)
    async with open_client("stories") as client:
        await client.post("/generate", json={"prompt": "Once"}, headers={"X-Request-ID": "abc-2"})
    lines = logged()

    assert any("out of luck" in line.get("exception", "") for line in lines)
    assert any(line.get("request_id") == "abc-2" for line in lines)


async def test_a_long_path_is_logged_by_its_beginning(
    open_client: OpenClient, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    async with open_client("stories") as client:
        await client.get("/" + "a" * 8000)

    (line,) = [line for line in logged() if line["event"] == "request"]
    assert line["path"] == "/" + "a" * 199


async def test_a_path_that_a_terminal_would_obey_is_logged_by_its_escapes(
    open_client: OpenClient, logged: Callable[[], list[dict[str, Any]]]
) -> None:
    async with open_client("stories") as client:
        await client.get("/%1b[2J%c2%9bé")

    (line,) = [line for line in logged() if line["event"] == "request"]
    assert line["path"] == "/\\x1b[2J\\x9bé"


async def test_a_client_that_leaves_while_it_sends_is_counted() -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def unexpected(*_: object) -> None:
        raise AssertionError("nobody is there")

    metrics = Metrics()
    app = ObserveRequests(
        LimitBody(unexpected, BodyLimits(100, timeout_s=1)), metrics, Tracing(None), ["/classify"], returns_ids=True
    )
    await app({"type": "http", "method": "POST", "path": "/classify", "headers": []}, gone, unexpected)

    counted = series(metrics.exposition().decode())
    assert counted['requests_total{code="499",model="unknown",task="unknown"}'] == 1
    assert not any(name.startswith("cancellations_total") for name in counted)  # of no model
