"""Which model's replica a request goes to, by its path and body."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from model.package import Manifest
from service.api.app import create_app
from service.api.calls import Tasks
from service.ingress import main
from service.ray_environment import BUFFER_BYTES
from service.routing import ROUTES, first_fitting
from service.settings import Settings
from tests.service.stand_ins import (
    ALIAS,
    GATEWAY,
    MODELS,
    PROXY,
    SHARED,
    Ingress,
    asked,
    exchange,
    manifests,
    needs_haproxy,
    post,
    running_ingress,
    write_models_file,
)

ROOT = Path(__file__).parents[2]


def test_rules_are_written_for_models_whose_shares_of_the_memory_are_counted_a_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [
        {"package": str(ROOT / "model/packages/stories"), "memory_share": 0.7, "autoscaling": {"min_replicas": 2}},
        {"package": str(ROOT / "model/packages/translate"), "memory_share": 0.25},
    ]
    (tmp_path / "models.yaml").write_text(json.dumps({"models": models}))
    monkeypatch.setenv("TRIFOLD_MODELS_FILE", str(tmp_path / "models.yaml"))
    monkeypatch.setattr("sys.argv", ["ingress", str(tmp_path / "rules")])
    main()

    assert "stories" in (tmp_path / "rules" / "models.map").read_text()


@needs_haproxy
@pytest.mark.parametrize("path", ["/classify", "/tokenize", "/classify?pretty=1"])
@pytest.mark.parametrize(
    "body",
    [
        '{"model": "sentiment", "input": "a"}',
        '{"input": "a", "model":"sentiment"}',
        json.dumps({"model": ALIAS, "input": "a"}),
    ],
)
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
def test_a_connection_has_one_request_at_a_time_and_not_the_streams_of_http_2(ingress: Ingress) -> None:
    answer = exchange(ingress, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")

    assert answer.startswith(b"HTTP/1.1 400 ")


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
        assert asked(post(ingress, "/classify", '{"model": "topics"}')) == (GATEWAY, "/models/topics/classify")
    with running_ingress(tmp_path, models_file, [GATEWAY], asleep=[SHARED, "sentiment", "topics"]) as ingress:
        for path, body in (("/classify", '{"model": "fashion"}'), ("/models/fashion/classify", "")):
            assert asked(post(ingress, path, body)) == (GATEWAY, "/replicas/shared/models/fashion/classify")


@needs_haproxy
@pytest.mark.parametrize("path", ["/models/topics/classify", "/models/nobody/classify", "/models/topics", "/models/"])
def test_what_has_no_replica_is_the_gateways_and_not_rays_proxys(ingress: Ingress, path: str) -> None:
    assert asked(post(ingress, path, "{}")) == (GATEWAY, path)
    assert asked(httpx.get(f"{ingress.address}{path}")) == (GATEWAY, path)
    assert asked(post(ingress, "/classify", '{"model": "topics"}')) == (GATEWAY, "/models/topics/classify")


@needs_haproxy
def test_while_there_is_no_gateway_rays_proxy_keeps_what_comes_for_it(tmp_path: Path) -> None:
    models_file = write_models_file(tmp_path / "models.yaml", MODELS)
    with running_ingress(tmp_path, models_file, ["sentiment"], asleep=[GATEWAY, "topics"]) as ingress:
        assert asked(post(ingress, "/classify", '{"model": "sentiment"}')) == (
            "sentiment",
            "/models/sentiment/classify",
        )
        assert asked(httpx.get(f"{ingress.address}/v1/models")) == (PROXY, "/v1/models")


@needs_haproxy
def test_models_that_serve_has_apart_are_reached_apart_whatever_the_models_file_says(tmp_path: Path) -> None:
    models_file = write_models_file(tmp_path / "models.yaml", MODELS, shared=MODELS)
    with running_ingress(tmp_path, models_file, [GATEWAY, "fashion"], asleep=["sentiment"]) as ingress:
        for path, body in (("/classify", "{}"), ("/models/fashion/classify", "")):
            assert asked(post(ingress, path, body)) == ("fashion", "/models/fashion/classify")
        assert asked(post(ingress, "/classify", '{"model": "sentiment"}')) == (GATEWAY, "/models/sentiment/classify")


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


@needs_haproxy
def test_on_a_cluster_whose_models_file_is_newer_than_serve_the_gateway_chooses(tmp_path: Path) -> None:
    models_file = write_models_file(tmp_path / "models.yaml", MODELS)
    with running_ingress(tmp_path, models_file, [GATEWAY], asleep=[], is_one_machine=False) as ingress:
        for body in ("{}", '{"model": "fashion"}'):
            assert asked(post(ingress, "/classify", body)) == (GATEWAY, "/classify")


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
