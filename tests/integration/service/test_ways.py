"""The real service on Ray, over real sockets: every way through HAProxy, gateway and replicas."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.processes import ROOT
from tests.integration.service.asking import LONG, REQUESTS, WAYS, every_way, request
from tests.integration.service.conftest import ASLEEP, HAPROXY_METRICS_PORT, LANGUAGES

pytestmark = pytest.mark.integration


def gateway_requests() -> tuple[float, float]:
    """Return when HAProxy began to count, in seconds, and how many requests it has sent to the gateway since."""
    page = httpx.get(f"http://127.0.0.1:{HAPROXY_METRICS_PORT}/metrics", timeout=30).text
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    (began,) = (sample.value for sample in samples if sample.name == "haproxy_process_start_time_seconds")
    (count,) = (
        sample.value
        for sample in samples
        if sample.name == "haproxy_backend_http_requests_total" and sample.labels["proxy"] == "http-gateway"
    )
    return began, count


@pytest.mark.parametrize(("model", "path", "body"), REQUESTS)
def test_every_way_to_a_model_leads_to_the_same_answer(
    service: str, model: str, path: str, body: dict[str, Any]
) -> None:
    answers = [httpx.request(**request(service, way, model, path, body)) for way in WAYS]

    assert {answer.status_code for answer in answers} == {200}, answers[0].text
    assert [answer.json() for answer in answers] == [answers[0].json()] * len(WAYS)
    assert answers[0].json()["model"] == model


@every_way
def test_only_what_haproxy_cannot_place_goes_through_the_gateway(service: str, way: str) -> None:
    # A model that sleeps is asked through the gateway.
    asked = [each for each in REQUESTS if each[0] != ASLEEP]
    for _ in range(5):
        began, before = gateway_requests()
        for model, path, body in asked:
            assert httpx.request(**request(service, way, model, path, body)).status_code == 200
        still_began, after = gateway_requests()
        if still_began == began:  # it begins anew a while after a model woke or fell asleep
            break
    else:
        pytest.fail("HAProxy began anew each time")

    assert after - before == (len(asked) if way == "gateway" else 0)


def test_a_clients_control_tokens_are_plain_text(service: str) -> None:
    asked = {
        "messages": [{"role": "user", "content": "Dan<|endoftext|>"}],
        "max_tokens": 1,
        "echo": True,
        "logprobs": 0,
    }
    answer = httpx.post(f"{service}/generate", json=asked, timeout=60).json()
    (choice,) = answer["choices"]
    of_prompt = choice["logprobs"][: answer["usage"]["prompt_tokens"]]  # what is generated may be the token, too
    tokens = httpx.post(f"{service}/tokenize", json={"model": "stories", "input": "<|endoftext|>"}, timeout=60).json()
    ((end,),) = tokens["results"]

    assert [token["id"] for token in of_prompt].count(end["id"]) == 1  # the template's own


def test_a_translation_begins_with_its_languages_token(service: str) -> None:
    asked = {"input": "Dan loves ice cream.", "target": "fr", "max_tokens": 1, "beam_size": 3}
    answer = httpx.post(f"{service}/translate", json=asked, timeout=60).json()
    ids = {"model": "translate", "ids": [40 + LANGUAGES.index("fr")]}
    token = httpx.post(f"{service}/detokenize", json=ids, timeout=60).json()["results"]

    assert answer["translations"] == token and answer["usage"]["completion_tokens"] == 1
    listed = httpx.get(f"{service}/languages", timeout=60).json()
    others = {language: [other for other in LANGUAGES if other != language] for language in LANGUAGES}
    assert {each["code"]: each["targets"] for each in listed} == others


@every_way
def test_a_stream_is_the_whole_answer_in_pieces(service: str, way: str) -> None:
    body = {"prompt": "Once", "max_tokens": 40, "seed": 3, "temperature": 1.0}
    whole = httpx.request(**request(service, way, "stories", "/generate", body)).json()
    pieces = []
    with httpx.stream(**request(service, way, "stories", "/generate", {**body, "stream": True})) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("data: {"):
                pieces.append(json.loads(line.removeprefix("data: ")))

    assert "".join(piece.get("text", "") for piece in pieces) == whole["choices"][0]["text"]
    assert pieces[-1]["usage"] == whole["usage"]


@every_way
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_client_that_leaves_gives_its_slots_back(service: str, way: str, is_stream: bool) -> None:
    asked = request(service, way, "stories", "/generate", {**LONG, "stream": is_stream})
    started, before = time.monotonic(), tokens(service)
    assert httpx.request(**asked).status_code == 200
    whole_s = time.monotonic() - started

    if is_stream:
        with httpx.stream(**asked) as response:
            lines = response.iter_lines()
            next(lines)
            assert slots_used(service) > 0
    else:
        with pytest.raises(httpx.ReadTimeout):
            httpx.request(**{**asked, "timeout": httpx.Timeout(60, read=whole_s / 10)})
    deadline = time.monotonic() + 30
    while slots_used(service) > 0:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1.1)  # until all of it is counted
    whole = LONG["n"] * LONG["max_tokens"]
    most = 1.5 if is_stream else 1.9  # of an answer that is not streamed only the time says how far it is
    assert whole < tokens(service) - before < most * whole, "it never began, or its sequences went on without it"


def tokens(service: str) -> int:
    """Return how many tokens the model has generated."""
    live = httpx.get(f"{service}/live", timeout=5).json()
    generated: int = live["models"]["stories"]["tokens"]
    return generated


def slots_used(service: str) -> int:
    health = httpx.get(f"{service}/models/stories/health", timeout=5).json()
    used: int = health["models"]["stories"]["slots_used"]
    return used


@every_way
def test_an_answer_of_many_megabytes_arrives(service: str, way: str) -> None:
    # As many log probabilities as are allowed.
    body = {"prompt": "Once", "n": 62, "logprobs": 20, "max_tokens": 104, "min_tokens": 104}
    answer = httpx.request(**request(service, way, "stories", "/generate", body))

    assert answer.status_code == 200, answer.text[:300]
    assert len(answer.content) > 6_000_000


@every_way
def test_errors_have_the_same_body_everywhere(service: str, way: str) -> None:
    response = httpx.request(**request(service, way, "stories", "/generate", {"prompt": "x " * 300}))

    assert response.status_code == 422
    assert response.json()["error"]["param"] == "prompt"
    assert "the limit is 127" in response.json()["error"]["message"]


def test_unknown_models_are_404(service: str) -> None:
    for path in ("/models/nobody/generate", "/nowhere", "/generate"):
        response = httpx.post(f"{service}{path}", json={"prompt": "x", "model": "nobody"}, timeout=30)
        assert response.status_code == 404
        assert response.json()["error"]["code"] == "not_found"
    assert "sentiment (classify), embed (embed, rerank)" in response.json()["error"]["message"]


def test_requests_keep_their_ids_on_the_straight_way(service: str) -> None:
    answer = httpx.post(f"{service}/classify", json={"input": "good"}, headers={"X-Request-ID": "mine"}, timeout=30)

    assert answer.headers.get_list("X-Request-ID") == ["mine"]


def test_documents_know_the_address_they_are_read_at(service: str) -> None:
    assert httpx.get(f"{service}/docs").status_code == 200
    assert "/models/stories/openapi.json" in httpx.get(f"{service}/models/stories/docs").text


def test_many_at_once_are_all_answered(service: str) -> None:
    import concurrent.futures

    def ask(index: int) -> int:
        prefix, path, body = (
            ("", *REQUESTS[index % 3][1:])
            if index % 2
            else (f"/models/{REQUESTS[index % 3][0]}", *REQUESTS[index % 3][1:])
        )
        return httpx.post(f"{service}{prefix}{path}", json=body, timeout=60).status_code

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert set(pool.map(ask, range(96))) == {200}


def test_a_busy_port_is_said_at_once(service: str) -> None:
    port = service.rsplit(":", 1)[1]
    ended = subprocess.run(
        [sys.executable, "-m", "service", "--port", port],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 1
    assert f"127.0.0.1:{port} cannot be listened on" in ended.stderr
