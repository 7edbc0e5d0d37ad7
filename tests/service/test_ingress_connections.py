"""Who is slow, who leaves, what is left out of a request or a log, and replicas that die."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

from service.draining import wait_for_readers
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


@pytest.fixture(scope="module")
def strict_ingress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingress]:
    """One that waits 0.3 s for a head, and for a body, and has keys."""
    folder = tmp_path_factory.mktemp("strict")
    models_file = write_models_file(folder / "models.yaml", MODELS)
    write(manifests(MODELS), folder / "trifold", body_timeout_s=0.3, needs_keys=True)
    with running_ingress(folder, models_file, [GATEWAY, "sentiment"], asleep=[]) as ingress:
        yield ingress


@needs_haproxy
@pytest.mark.parametrize("path", ["/classify", "/models/sentiment/classify", "/nowhere"])
@pytest.mark.parametrize("method", ["POST", "PUT"])
@pytest.mark.parametrize("size", ["Content-Length: 22", "Transfer-Encoding: chunked"])
def test_a_body_that_does_not_come_is_not_waited_for_long_and_reaches_no_replica(
    strict_ingress: Ingress, path: str, method: str, size: str
) -> None:
    answer = exchange(strict_ingress, f"{method} {path} HTTP/1.1\r\nHost: x\r\n{size}\r\n\r\n1".encode())

    assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n"), answer
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "request_timeout"


@needs_haproxy
def test_a_head_that_comes_letter_by_letter_is_not_waited_for_long(strict_ingress: Ingress) -> None:
    with socket.create_connection(("127.0.0.1", strict_ingress.port), timeout=0.05) as connection:
        connection.sendall(b"POST /classify HTTP/1.1\r\nX-Long: ")
        for _ in range(100):
            connection.sendall(b"a")
            with suppress(TimeoutError):
                answer = connection.recv(65536)
                break
        else:
            raise AssertionError("it was waited for")

    assert answer.startswith(b"HTTP/1.1 408 ") and b"<html>" in answer  # in HAProxy's own words: it takes no others


@needs_haproxy
@pytest.mark.parametrize(
    "head",
    [b"Host: x\r\nHost: y\r\n", b"X: " + b"a" * 65_536 + b"\r\n", b"X: a\r\n" * 101],
    ids=["two hosts", "long", "many"],
)
def test_what_is_no_head_is_refused_in_haproxys_own_words(strict_ingress: Ingress, head: bytes) -> None:
    answer = exchange(strict_ingress, b"GET / HTTP/1.1\r\n%s\r\n" % head)

    assert answer.startswith(b"HTTP/1.1 400 ") and b"<html>" in answer


@needs_haproxy
def test_a_connection_on_which_nothing_came_is_closed_without_an_answer(strict_ingress: Ingress) -> None:
    assert exchange(strict_ingress, b"") == b""


@needs_haproxy
def test_who_closes_half_of_the_connection_gets_no_answer_and_is_told_why(ingress: Ingress) -> None:
    with socket.create_connection(("127.0.0.1", ingress.port), timeout=10) as connection:
        connection.sendall(b"POST /classify HTTP/1.1\r\nHost: x\r\nX-Behaviour: wait\r\nContent-Length: 2\r\n\r\n{}")
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert "closed its half" in json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


@needs_haproxy
def test_a_stream_ends_for_an_old_client_with_its_connection(strict_ingress: Ingress) -> None:
    strict_ingress.servers["sentiment"].may_go_on.set()
    head = b"POST /classify HTTP/1.0\r\nConnection: keep-alive\r\nX-Behaviour: %s\r\nContent-Length: 22\r\n\r\n"
    streamed = exchange(strict_ingress, head % b"stream" + b'{"model": "sentiment"}')

    assert b"second" in streamed and b"connection: close" in streamed


@needs_haproxy
@pytest.mark.parametrize(
    ("line", "status", "code"),
    [
        ("GET health", 400, "bad_request"),
        ("GET *", 400, "bad_request"),
        ("FOO /classify", 405, "method_not_allowed"),
        ("CONNECT x:80", 405, "method_not_allowed"),
    ],
)
def test_what_the_service_would_not_understand_is_refused(ingress: Ingress, line: str, status: int, code: str) -> None:
    answer = exchange(ingress, f"{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())

    assert answer.startswith(b"HTTP/1.1 %d " % status) and (b"allow: GET, HEAD, POST" in answer) == (status == 405)
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == code


@needs_haproxy
def test_the_options_of_the_whole_server_are_answered(ingress: Ingress) -> None:
    answer = exchange(ingress, b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 204 ")


@needs_haproxy
def test_a_handshake_of_a_websocket_is_a_get_like_any_other(ingress: Ingress) -> None:
    handshake = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    headers = {**handshake, "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    answer = httpx.get(f"{ingress.address}/v1/realtime", headers=headers)

    assert asked(answer) == (GATEWAY, "/v1/realtime") and "upgrade" not in answer.json()["headers"]


@needs_haproxy
def test_where_keys_are_needed_rays_list_of_models_is_not_shown(strict_ingress: Ingress, ingress: Ingress) -> None:
    for path in ("/-/routes", "/-/ROUTES", "/-/%72outes"):
        refused = httpx.get(f"{strict_ingress.address}{path}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert httpx.get(f"{strict_ingress.address}/-/healthz").status_code != 403
    assert httpx.get(f"{ingress.address}/-/routes").status_code != 403


@needs_haproxy
@pytest.mark.parametrize(
    "given", [b"", b"a b", b"\xff", b"\xc3\xa9", b"a,b", b"a" * 129, b'"', b"ok\r\nX-Request-ID: \xff"]
)
def test_an_id_that_ray_or_the_logs_could_trip_over_is_left_out(ingress: Ingress, given: bytes) -> None:
    head = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-ID: %s\r\n\r\n"

    assert b"x-request-id" not in exchange(ingress, head % given).lower()
    assert b"x-request-id" in exchange(ingress, head % b"Az0_.:/+=-").lower()
    assert b"x-request-id" in exchange(ingress, head % (b"a" * 128)).lower()


@needs_haproxy
@pytest.mark.parametrize(
    "name", [b"X-Session-ID", b"x_session_id", b"serve_multiplexed_model_id", b"Serve-Multiplexed-Model-Id"]
)
def test_headers_that_choose_among_rays_replicas_are_left_out(ingress: Ingress, name: bytes) -> None:
    head = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s: \xff\r\nX-Other: 1\r\n\r\n"
    told = exchange(ingress, head % name).lower()

    assert name.lower() not in told and b"x-other" in told


@needs_haproxy
def test_no_request_is_logged_with_its_query(ingress: Ingress) -> None:
    assert httpx.post(f"{ingress.address}/translate?api_key=secret", json={}).status_code == 200
    exchange(ingress, b"BAD\r\n\r\n")  # what is no request is told of, by no rule
    said = b""
    while b"BADREQ" not in said:
        said += ingress.log.recv(65536)

    assert b"secret" not in said


@needs_haproxy
def test_pieces_of_an_answer_come_as_they_are_sent(ingress: Ingress) -> None:
    headers, body = {"X-Behaviour": "stream"}, {"model": "stories"}
    with httpx.stream("POST", f"{ingress.address}/generate", json=body, headers=headers, timeout=10) as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == b"first"
        ingress.servers["stories"].may_go_on.set()
        assert next(pieces) == b"second"


@needs_haproxy
def test_a_replica_notices_that_its_client_leaves(ingress: Ingress) -> None:
    with pytest.raises(httpx.ReadTimeout):
        headers = {"X-Behaviour": "wait"}
        httpx.post(f"{ingress.address}/classify", json={"model": "sentiment"}, headers=headers, timeout=3)

    assert ingress.servers["sentiment"].client_left.wait(5)


@needs_haproxy
@pytest.mark.parametrize("path", ["/classify", "/models/sentiment/classify"])
def test_a_replica_that_dies_over_a_request_is_an_error_like_any_other(ingress: Ingress, path: str) -> None:
    with httpx.Client(base_url=ingress.address, timeout=10) as client:
        for headers, status in (({}, 200), ({"X-Behaviour": "die"}, 503)):  # the second on connections used before
            answer = client.post(path, content='{"model": "sentiment"}', headers=headers)
            assert answer.status_code == status

    assert (answer.headers["Retry-After"], answer.json()["error"]["code"]) == ("1", "not_ready")


@needs_haproxy
def test_a_request_whose_replica_dies_before_it_answers_is_sent_again(ingress: Ingress) -> None:
    ingress.servers["sentiment"].has_died.clear()  # over another test's request
    answer = post(ingress, "/classify", '{"model": "sentiment"}', **{"X-Behaviour": "die once"})

    assert ingress.servers["sentiment"].has_died.is_set()
    assert asked(answer) == ("sentiment", "/models/sentiment/classify")


@needs_haproxy
def test_a_client_cannot_keep_ray_from_noticing_that_it_left(ingress: Ingress) -> None:
    answer = post(
        ingress, "/classify", "{}", **{"X-Request-Disconnect-Disabled": "?1", "X-Request-Timeout-Seconds": "9"}
    )

    assert not [name for name in answer.json()["headers"] if name.lower().startswith("x-request-")]


@needs_haproxy
def test_whose_answer_is_not_handed_on_yet_is_waited_for(ingress: Ingress) -> None:
    admin = ingress.config.with_name("admin.sock")
    assert wait_for_readers(admin, within_s=5)
    with socket.create_connection(("127.0.0.1", ingress.port)) as connection:
        connection.sendall(b"POST /classify HTTP/1.1\r\nHost: x\r\nContent-Length: 22\r\n\r\n1")
        deadline = time.monotonic() + 10
        while wait_for_readers(admin, within_s=0):
            assert time.monotonic() < deadline, "its half of a request is no stream"
        as_ray_is_told = admin.parent.with_name(admin.name)  # which has a folder of its own for each node
        assert not wait_for_readers(as_ray_is_told, within_s=0)
    assert wait_for_readers(admin, within_s=5)

    idle = httpx.Client(base_url=ingress.address)
    assert idle.get("/v1/models").status_code == 200
    assert wait_for_readers(admin, within_s=5)  # a connection that asks nothing is no reader
    idle.close()
    assert wait_for_readers(ingress.config.with_name("none.sock"), within_s=5)  # without HAProxy there is nobody
