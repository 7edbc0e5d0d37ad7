from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from model.package import Manifest
from service.api.app import create_app
from service.api.calls import Tasks
from service.ingress import ROUTES, first_fitting, write
from service.ray_environment import BUFFER_BYTES
from service.settings import Settings
from tests.service.stand_ins import (
    GATEWAY,
    MODELS,
    PACKAGES,
    SHARED,
    Ingress,
    needs_haproxy,
    running_ingress,
    write_models_file,
)


def manifests(names: list[str]) -> list[Manifest]:
    return [Manifest.load(PACKAGES / name) for name in names]


@pytest.fixture(scope="module")
def ingress(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ingress]:
    """HAProxy before a server for each model but one, and one for the gateway."""
    folder = tmp_path_factory.mktemp("ingress")
    models_file = write_models_file(folder / "models.yaml", MODELS)
    there = [GATEWAY, *(name for name in MODELS if name != "topics")]
    with running_ingress(folder, models_file, there, asleep=["topics"]) as ingress:
        yield ingress


def asked(answer: httpx.Response) -> tuple[str, str]:
    """Return the server that was asked, and for which path."""
    assert answer.status_code == 200, answer.text
    return answer.json()["server"], answer.json()["path"]


def post(ingress: Ingress, path: str, body: str | bytes, **headers: str) -> httpx.Response:
    return httpx.post(f"{ingress.address}{path}", content=body, headers=headers, timeout=10)


def exchange(ingress: Ingress, request: bytes) -> bytes:
    """Send a request as it is and return all that comes until the end of the connection."""
    with socket.create_connection(("127.0.0.1", ingress.port), timeout=10) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer


@needs_haproxy
@pytest.mark.parametrize("path", ["/classify", "/tokenize", "/classify?pretty=1"])
@pytest.mark.parametrize("body", ['{"model": "sentiment", "input": "a"}', '{"input": "a", "model":"sentiment"}'])
def test_a_request_goes_straight_to_the_model_that_it_names(ingress: Ingress, path: str, body: str) -> None:
    assert asked(post(ingress, path, body)) == ("sentiment", f"/models/sentiment{path}")


@needs_haproxy
@pytest.mark.parametrize(
    ("path", "model"), [("/classify", "fashion"), ("/generate", "stories"), ("/tokenize", "sentiment")]
)
@pytest.mark.parametrize("body", ['{"input": "a"}', '{"model": null}', '{"input": ["\\"model\\""]}', "not JSON", ""])
def test_a_request_that_names_none_goes_to_the_first_fitting_model(
    ingress: Ingress, path: str, model: str, body: str
) -> None:
    assert asked(post(ingress, path, body)) == (model, f"/models/{model}{path}")


UNCERTAIN = {
    "unknown": '{"model": "nobody"}',
    "up and away": '{"model": "a/../b c"}',
    "a path": '{"model": "../sentiment"}',
    "quotes": '{"model": "sent\\"iment"}',
    "a line break": '{"model": "sentiment\\r\\nX: y"}',
    "a number": '{"model": 5}',
    "true": '{"model": true}',
    "a list": '{"model": ["sentiment"]}',
    "an object": '{"model": {"model": "sentiment"}}',
    "empty": '{"model": ""}',
    "capitals": '{"model": "Sentiment"}',
    "twice": '{"model": "sentiment", "model": "stories"}',
    "first null": '{"model": null, "model": "stories"}',
    "nested": '{"input": {"model": "sentiment"}}',
    "a value": '{"input": "model", "model": "nobody"}',
    "an escaped name": '{"model": "senti\\u006dent"}',
    "an escaped key": '{"mod\\u0065l": "stories"}',
    "both": '{"model": "sentiment", "mod\\u0065l": "stories"}',
    "deep": '{"input": ' + "[" * 100 + "]" * 100 + ', "model": "stories"}',
    "broken after": '{"input": [}, "model": "stories"}',
    "without a replica": '{"model": "topics"}',
}


@needs_haproxy
@pytest.mark.parametrize("body", UNCERTAIN.values(), ids=UNCERTAIN.keys())
def test_what_could_be_understood_otherwise_goes_to_the_gateway(ingress: Ingress, body: str) -> None:
    assert asked(post(ingress, "/classify", body)) == (GATEWAY, "/classify")


@needs_haproxy
def test_other_encodings_go_to_the_gateway(ingress: Ingress) -> None:
    body = '{"model": "stories", "input": "a"}'.encode("utf-16")

    assert asked(post(ingress, "/tokenize", body)) == (GATEWAY, "/tokenize")


@needs_haproxy
@pytest.mark.parametrize("path", ["/translate", "/nowhere", "/classify/", "/Classify"])
def test_a_route_that_no_model_fits_goes_to_the_gateway(ingress: Ingress, path: str) -> None:
    assert asked(post(ingress, path, '{"input": "a"}')) == (GATEWAY, path)


@needs_haproxy
def test_only_posts_are_sent_elsewhere(ingress: Ingress) -> None:
    for path in ("/classify", "/v1/models", "/docs", "/"):
        assert asked(httpx.get(f"{ingress.address}{path}")) == (GATEWAY, path)


@needs_haproxy
def test_a_models_own_address_is_as_it_was(ingress: Ingress) -> None:
    answer = post(ingress, "/models/sentiment/classify", '{"model": "stories"}')

    assert asked(answer) == ("sentiment", "/models/sentiment/classify")


@needs_haproxy
@pytest.mark.parametrize("size", [BUFFER_BYTES // 2, BUFFER_BYTES, 2_000_000])
def test_a_long_body_goes_straight_when_its_model_comes_early(ingress: Ingress, size: int) -> None:
    text = "a" * size
    early, late = (json.dumps(body) for body in ({"model": "sentiment", "input": text}, {"input": text, "model": "x"}))

    assert asked(post(ingress, "/classify", early)) == ("sentiment", "/models/sentiment/classify")
    assert asked(post(ingress, "/classify", late)) == (GATEWAY, "/classify")
    assert post(ingress, "/classify", early).json()["bytes"] == len(early)


@needs_haproxy
def test_a_body_too_long_to_see_whole_has_no_default(ingress: Ingress) -> None:
    assert asked(post(ingress, "/classify", json.dumps({"input": "a" * 2 * BUFFER_BYTES}))) == (GATEWAY, "/classify")


@needs_haproxy
def test_a_chunked_body_goes_straight_when_it_names_its_model(ingress: Ingress) -> None:
    def ask(*pieces: bytes) -> httpx.Response:
        return httpx.post(f"{ingress.address}/classify", content=iter(pieces))

    assert asked(ask(b'{"mod', b'el": "senti', b'ment"}')) == ("sentiment", "/models/sentiment/classify")
    assert asked(ask(b'{"input": ', b'"a"}')) == (GATEWAY, "/classify")  # whether more would come is not known


@needs_haproxy
def test_one_connection_may_ask_several_models(ingress: Ingress) -> None:
    with httpx.Client(base_url=ingress.address) as client:
        for model in ("sentiment", "stories", "nobody", "sentiment", "topics"):
            is_there = model in {"sentiment", "stories"}
            server, _ = asked(client.post("/tokenize", json={"model": model}))
            assert server == (model if is_there else GATEWAY)


@needs_haproxy
def test_old_clients_are_served(ingress: Ingress) -> None:
    body = b'{"model": "sentiment"}'
    answer = exchange(ingress, b"POST /classify HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))

    assert b" 200 " in answer.splitlines()[0]
    assert b'"path": "/models/sentiment/classify"' in answer


@needs_haproxy
def test_a_client_that_waits_to_send_its_body_is_told_to(ingress: Ingress) -> None:
    body = b'{"model": "sentiment"}'
    head = (
        b"POST /classify HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", ingress.port), timeout=10) as connection:
        connection.sendall(head % len(body))
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))

    assert answer.count(b"HTTP/1.1") == 1
    assert b'"path": "/models/sentiment/classify"' in answer


@needs_haproxy
def test_a_body_in_several_packets_is_waited_for(ingress: Ingress) -> None:
    with socket.create_connection(("127.0.0.1", ingress.port), timeout=10) as connection:
        connection.sendall(b"POST /classify HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 22\r\n\r\n")
        for piece in (b'{"mod', b'el": "sentim', b'ent"}'):
            connection.sendall(piece)
        assert b'"server": "sentiment"' in b"".join(iter(lambda: connection.recv(65536), b""))


@needs_haproxy
def test_models_that_share_a_replica_are_reached_there_while_it_is(tmp_path: Path) -> None:
    models_file = write_models_file(tmp_path / "models.yaml", MODELS, shared=["fashion", "stories"])
    with running_ingress(tmp_path, models_file, [GATEWAY, SHARED, "sentiment"], asleep=["topics"]) as ingress:
        for path, body in (
            ("/classify", "{}"),
            ("/classify", '{"model": "fashion"}'),
            ("/models/fashion/classify", ""),
        ):
            assert asked(post(ingress, path, body)) == (SHARED, "/replicas/shared/models/fashion/classify")
        assert asked(httpx.get(f"{ingress.address}/models/stories?x=1")) == (
            SHARED,
            "/replicas/shared/models/stories?x=1",
        )
        assert asked(post(ingress, "/classify", '{"model": "sentiment"}')) == (
            "sentiment",
            "/models/sentiment/classify",
        )
        assert asked(post(ingress, "/classify", '{"model": "topics"}')) == (GATEWAY, "/classify")
    with running_ingress(tmp_path, models_file, [GATEWAY], asleep=[SHARED, "sentiment", "topics"]) as ingress:
        assert asked(post(ingress, "/classify", '{"model": "fashion"}')) == (GATEWAY, "/classify")
        assert asked(post(ingress, "/models/fashion/classify", "")) == (GATEWAY, "/models/fashion/classify")


@needs_haproxy
def test_models_that_serve_has_apart_are_reached_apart_whatever_the_models_file_says(tmp_path: Path) -> None:
    models_file = write_models_file(tmp_path / "models.yaml", MODELS, shared=MODELS)
    with running_ingress(tmp_path, models_file, [GATEWAY, "fashion"], asleep=["sentiment"]) as ingress:
        for path, body in (("/classify", "{}"), ("/models/fashion/classify", "")):
            assert asked(post(ingress, path, body)) == ("fashion", "/models/fashion/classify")
        assert asked(post(ingress, "/classify", '{"model": "sentiment"}')) == (GATEWAY, "/classify")


@needs_haproxy
@pytest.mark.parametrize("shared", [[], MODELS])
def test_models_without_an_application_of_their_own_are_where_the_gateway_is(tmp_path: Path, shared: list[str]) -> None:
    models_file = write_models_file(tmp_path / "models.yaml", MODELS, shared)
    with running_ingress(tmp_path, models_file, [GATEWAY], asleep=[]) as ingress:
        for path, body in (
            ("/classify", "{}"),
            ("/classify", '{"model": "fashion"}'),
            ("/models/fashion/classify", ""),
        ):
            assert asked(post(ingress, path, body)) == (GATEWAY, "/models/fashion/classify")
        assert asked(post(ingress, "/classify", '{"model": "nobody"}')) == (GATEWAY, "/classify")
        assert asked(httpx.get(f"{ingress.address}/v1/models")) == (GATEWAY, "/v1/models")


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

    assert answer.startswith(b"HTTP/1.1 408 ")


@needs_haproxy
def test_where_keys_are_needed_rays_list_of_models_is_not_shown(strict_ingress: Ingress, ingress: Ingress) -> None:
    for path in ("/-/routes", "/-/ROUTES", "/-/%72outes"):
        refused = httpx.get(f"{strict_ingress.address}{path}")
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert httpx.get(f"{strict_ingress.address}/-/healthz").status_code != 403
    assert httpx.get(f"{ingress.address}/-/routes").status_code != 403


@needs_haproxy
@pytest.mark.parametrize("given", [b"a b", b"\xff", b"\xc3\xa9", b"a,b", b"a" * 129, b'"', b"ok\r\nX-Request-ID: \xff"])
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


def test_every_route_that_takes_a_model_is_known() -> None:
    app: Any = create_app([], Settings())
    paths = {path for path, operations in app.openapi()["paths"].items() if "post" in operations}

    assert paths == set(ROUTES)


class Named:
    """A task of which only the manifest matters."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest


@pytest.mark.parametrize("names", [MODELS, ["stories", "topics", "sentiment", "translate"], ["fashion"]])
def test_the_gateway_chooses_as_haproxy_does(names: list[str]) -> None:
    there = manifests(names)
    tasks: Any = [Named(manifest) for manifest in there]
    for task in ROUTES.values():
        chosen = first_fitting(there, task)
        if chosen is not None:
            assert Tasks(tasks).find(None, task).manifest is chosen
