"""Pages of allowed sites, which may read what HAProxy answers itself, and those of others, which may not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from service.ingress import write
from tests.service.stand_ins import (
    GATEWAY,
    MODELS,
    Ingress,
    asked,
    exchange,
    manifests,
    needs_haproxy,
    post,
    running_ingress,
    write_models_file,
)

ORIGIN = "https://app.example"
ASKS_FIRST = {
    "Access-Control-Request-Method": "POST",
    "Access-Control-Request-Headers": "authorization,content-type",
    "Access-Control-Request-Private-Network": "true",
}


@contextmanager
def readable_ingress(folder: Path, applications: list[str]) -> Iterator[Ingress]:
    models_file = write_models_file(folder / "models.yaml", MODELS)
    write(manifests(MODELS), folder / "trifold", body_timeout_s=0.3, allowed_origins=[ORIGIN])
    with running_ingress(folder, models_file, applications, asleep=[]) as ingress:
        yield ingress


@pytest.fixture(scope="module")
def ingress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingress]:
    """One that waits 0.3 s for a body, and lets the pages of a site read."""
    with readable_ingress(tmp_path_factory.mktemp("pages"), [GATEWAY]) as ingress:
        yield ingress


@pytest.fixture(scope="module")
def starting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingress]:
    """The same before there is any application."""
    with readable_ingress(tmp_path_factory.mktemp("starting"), []) as ingress:
        yield ingress


@needs_haproxy
def test_a_page_of_an_allowed_site_reads_that_the_service_starts_and_when_to_come_back(starting: Ingress) -> None:
    answer = post(starting, "/classify", "{}", Origin=ORIGIN)

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert (answer.headers["Access-Control-Allow-Origin"], answer.headers["Vary"]) == (ORIGIN, "Origin")
    assert {"Retry-After", "X-Should-Retry"} <= set(answer.headers["Access-Control-Expose-Headers"].split(", "))


@needs_haproxy
def test_a_page_of_an_allowed_site_may_ask_first_while_the_service_starts(starting: Ingress) -> None:
    answer = httpx.options(f"{starting.address}/classify", headers={"Origin": ORIGIN, **ASKS_FIRST})

    assert (answer.status_code, answer.headers["Access-Control-Allow-Origin"]) == (204, ORIGIN)
    assert answer.headers["Access-Control-Allow-Methods"] == "GET, HEAD, POST"
    assert answer.headers["Access-Control-Allow-Headers"] == ASKS_FIRST["Access-Control-Request-Headers"]
    assert answer.headers["Access-Control-Allow-Private-Network"] == "true"


@needs_haproxy
@pytest.mark.parametrize(
    "origin", ["https://evil.example", f"{ORIGIN}.evil.example", f"https://evil.example, {ORIGIN}", "null", ""]
)
def test_a_page_of_another_site_reads_nothing(starting: Ingress, origin: str) -> None:
    for answer in (
        post(starting, "/classify", "{}", Origin=origin),
        httpx.options(f"{starting.address}/classify", headers={"Origin": origin, **ASKS_FIRST}),
    ):
        assert answer.status_code == 503
        assert not [name for name in answer.headers if name.startswith("access-control-")]


@needs_haproxy
@pytest.mark.parametrize(
    ("request_line", "status"), [("POST /classify", 408), ("FOO /classify", 405), ("POST classify", 400)]
)
def test_whatever_haproxy_answers_may_be_read(ingress: Ingress, request_line: str, status: int) -> None:
    head = f"{request_line} HTTP/1.1\r\nHost: x\r\nOrigin: {ORIGIN}\r\nConnection: close\r\nContent-Length: 9\r\n\r\n"
    answer = exchange(ingress, head.encode())

    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert f"access-control-allow-origin: {ORIGIN}\r\n".encode() in answer


@needs_haproxy
def test_what_the_service_has_said_is_not_said_twice(ingress: Ingress) -> None:
    answer = post(ingress, "/nowhere", "{}", Origin=ORIGIN, **{"X-Behaviour": "let read"})

    assert asked(answer) == (GATEWAY, "/nowhere")
    assert answer.headers.get_list("Access-Control-Allow-Origin") == [ORIGIN]
    assert "Access-Control-Expose-Headers" not in answer.headers
