"""The real service on Ray: HAProxy, gateway, replicas, over real sockets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.monitoring.local import free_port
from model.package.manifest import Precision
from tests.conftest import MakePackage, with_manifest
from tests.deploy.queries import ELSEWHERE, asked_for, queries
from tests.integration.processes import ROOT, running
from tests.service.api.conftest import series

pytestmark = pytest.mark.integration

READY_WITHIN_S = 240


MODELS: dict[str, Precision] = {
    **dict.fromkeys(("sentiment", "embed", "stories", "translate"), "int8"),
    **dict.fromkeys(("entailment", "ranker", "entities", "answers", "encoder"), "float32"),
}
# What their manifests say beside what they were exported with.
LANGUAGES = ("en", "de", "fr", "sv")
CHANGES: dict[str, dict[str, Any]] = {
    "stories": {"chat_template": {"source": "{{ messages[0].content }}<|endoftext|>"}},
    "translate": {
        "languages": {"ids": {name: 40 + place for place, name in enumerate(LANGUAGES)}, "forces_target": True},
        "task_prompts": {"summarize": {"prefix": "In short: ", "generation": {"max_tokens": 7, "beam_size": 2}}},
    },
}
METRICS_PORT = free_port()
RAY_METRICS_PORT = free_port()
HAPROXY_METRICS_PORT = free_port()


@pytest.fixture(scope="module")
def service(make_package: MakePackage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start `python -m service` over the tiny models; its address."""
    folder = tmp_path_factory.mktemp("service")
    packages = [
        with_manifest(make_package(name, kind), folder / name, **CHANGES.get(name, {})) for name, kind in MODELS.items()
    ]
    (folder / "models.yaml").write_text("models:\n" + "".join(f"  - package: {package}\n" for package in packages))
    port = free_port()
    environment = {
        **os.environ,
        "TRIFOLD_MODELS_FILE": str(folder / "models.yaml"),
        "TRIFOLD_METRICS_PORT": str(METRICS_PORT),
        "TRIFOLD_RAY_METRICS_PORT": str(RAY_METRICS_PORT),
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(HAPROXY_METRICS_PORT),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(free_port()),
    }
    address = f"http://127.0.0.1:{port}"
    with running([sys.executable, "-m", "service", "--port", str(port)], environment, folder / "log") as process:
        wait_until_ready(process, address, folder / "log")
        yield address
    with pytest.raises(httpx.ConnectError):  # nothing is left listening
        httpx.get(f"{address}/health")


def wait_until_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the service ended:\n{log.read_text()}"
        try:
            # Models may answer a moment before HAProxy knows their addresses, and before the end is prepared for.
            if httpx.get(f"{address}/ready", timeout=5).status_code == 200 and "ready at" in log.read_text():
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.25)
    raise AssertionError(f"not ready after {READY_WITHIN_S} s:\n{log.read_text()}")


REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("sentiment", "/classify", {"input": ["The film was good.", "not so good"]}),
    ("embed", "/embed", {"input": ["The film was good.", "not so good"]}),
    ("stories", "/generate", {"prompt": "Once upon a time", "max_tokens": 9, "temperature": 0}),
    ("translate", "/translate", {"q": "Dan loves ice cream.", "target": "sv", "max_tokens": 9}),
    ("stories", "/generate", {"messages": [{"role": "user", "content": "Who is Dan?"}], "max_tokens": 9, "seed": 1}),
    ("translate", "/summarize", {"input": "Once upon a time there was a little dog."}),
    ("translate", "/tokenize", {"input": "Dan", "model": "translate"}),
    ("entailment", "/classify", {"input": "The film was good.", "labels": ["film", "dog"], "model": "entailment"}),
    ("sentiment", "/classify", {"input": "The film was good. " * 40, "windows": True}),
    ("ranker", "/rerank", {"query": "the dog", "documents": ["a red ball", {"text": "the dog"}], "top_n": 1}),
    ("entities", "/tag", {"input": ["Dan loves ice cream. " * 40, "The dog was good."]}),
    ("answers", "/answer", {"question": "Who?", "context": "Dan loves ice cream. " * 40, "top_k": 3}),
    ("encoder", "/fill", {"input": "Dan loves [MASK]."}),
    ("embed", "/embed", {"input": "The film was good.", "dimensions": 8, "prompt": "the dog: "}),
]


# By default, by name, by address; and spelt so that HAProxy leaves it to the gateway.
WAYS = ["/", "/ model", "/models", "gateway"]
every_way = pytest.mark.parametrize("way", WAYS)


def request(service: str, way: str, model: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return what httpx needs to ask a model in one of the ways."""
    if way == "gateway":
        hidden = json.dumps({"model": model, **body}).replace('"model":', '"mod\\u0065l":', 1)
        return {"method": "POST", "url": f"{service}{path}", "content": hidden, "timeout": 60}
    prefix, name = f"/models/{model}" if way == "/models" else "", {"model": model} if way == "/ model" else {}
    return {"method": "POST", "url": f"{service}{prefix}{path}", "json": {**name, **body}, "timeout": 60}


def gateway_requests() -> float:
    """Return how many requests HAProxy has sent to the gateway."""
    page = httpx.get(f"http://127.0.0.1:{HAPROXY_METRICS_PORT}/metrics", timeout=30).text
    (count,) = (
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == "haproxy_backend_http_requests_total" and sample.labels["proxy"] == "http-gateway"
    )
    return float(count)


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
    before = gateway_requests()
    for model, path, body in REQUESTS:
        assert httpx.request(**request(service, way, model, path, body)).status_code == 200

    assert gateway_requests() - before == (len(REQUESTS) if way == "gateway" else 0)


def test_a_clients_control_tokens_are_plain_text(service: str) -> None:
    asked = {
        "messages": [{"role": "user", "content": "Dan<|endoftext|>"}],
        "max_tokens": 1,
        "echo": True,
        "logprobs": 0,
    }
    (choice,) = httpx.post(f"{service}/generate", json=asked, timeout=60).json()["choices"]
    tokens = httpx.post(f"{service}/tokenize", json={"model": "stories", "input": "<|endoftext|>"}, timeout=60).json()
    ((end,),) = tokens["results"]

    assert [token["id"] for token in choice["logprobs"]].count(end["id"]) == 1  # the template's own


def test_a_translation_begins_with_its_languages_token(service: str) -> None:
    asked = {"q": "Dan loves ice cream.", "target": "fr", "max_tokens": 1, "beam_size": 3}
    answer = httpx.post(f"{service}/translate", json=asked, timeout=60).json()
    ids = {"model": "translate", "ids": [40 + LANGUAGES.index("fr")]}
    token = httpx.post(f"{service}/detokenize", json=ids, timeout=60).json()["results"]

    assert [answer["translatedText"]] == token and answer["usage"]["completion_tokens"] == 1
    listed = httpx.get(f"{service}/languages", timeout=60).json()
    assert listed == {"model": "translate", "languages": [{"code": language} for language in LANGUAGES]}


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


LONG = {"prompt": "Once", "max_tokens": 120, "min_tokens": 120, "n": 256}


@every_way
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_client_that_leaves_gives_its_slots_back(service: str, way: str, is_stream: bool) -> None:
    asked = request(service, way, "stories", "/generate", {**LONG, "stream": is_stream})
    started = time.monotonic()
    assert httpx.request(**asked).status_code == 200
    whole_s = time.monotonic() - started

    if is_stream:
        with httpx.stream(**asked) as response:
            lines = response.iter_lines()
            next(lines)
            assert slots_used(service) > 0
    else:
        with pytest.raises(httpx.ReadTimeout):
            httpx.request(**{**asked, "timeout": whole_s / 10})
    left = time.monotonic()
    while slots_used(service) > 0:
        assert time.monotonic() - left < whole_s / 2, "its sequences went on without it"


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
    assert "sentiment (classify), embed (embed)" in response.json()["error"]["message"]


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


def test_one_page_counts_for_every_process_of_the_node(service: str) -> None:
    for path, body in (("/classify", {"input": "good"}), ("/models/sentiment/classify", {"input": "good"})):
        assert httpx.post(f"{service}{path}", json=body, timeout=30).status_code == 200
    time.sleep(1)
    pages = [httpx.get(f"http://127.0.0.1:{METRICS_PORT}/metrics", timeout=30).text]
    pages += [httpx.get(f"{service}{prefix}/metrics", timeout=30).text for prefix in ("", "/models/stories")]

    for page in map(series, pages):
        models = {name for name in page if name.startswith("model_info")}
        assert len(models) == len(MODELS)  # each in a process of its own
        # One came through the gateway, one directly; both ran in the model's replica.
        assert page['requests_total{code="200",model="sentiment",task="classify"}'] >= 2
        assert page['batch_rows_sum{model="sentiment",phase="encode"}'] >= 2


def test_alerts_and_dashboards_ask_for_metrics_and_labels_that_exist(service: str) -> None:
    for _, path, body in REQUESTS:
        httpx.post(f"{service}{path}", json=body, timeout=30)
    httpx.post(f"{service}/generate", json={"prompt": "x " * 300}, timeout=30)  # refused
    with pytest.raises(httpx.ReadTimeout):  # cancelled
        httpx.post(f"{service}/models/stories/generate", json=LONG, timeout=0.05)

    def problems() -> list[str]:
        labels = scraped_labels()
        return [problem for query in queries() for problem in unknown(query, labels)]

    deadline = time.monotonic() + 60  # Ray writes its own every ten seconds
    while found := problems():
        assert time.monotonic() < deadline, "\n".join(found)
        time.sleep(1)


def scraped_labels() -> dict[str, set[str]]:
    """Return the labels of every metric that the service and Ray show."""
    labels: dict[str, set[str]] = {}
    for port in (METRICS_PORT, RAY_METRICS_PORT, HAPROXY_METRICS_PORT):
        page = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=30).text
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                labels.setdefault(sample.name, set()).update(sample.labels)
    return labels


def unknown(query: str, labels: dict[str, set[str]]) -> Iterator[str]:
    """Yield what a query asks for and nobody shows."""
    metrics, wanted = asked_for(query)
    if metrics & ELSEWHERE:
        return
    yield from (f"no metric {metric}: {query}" for metric in metrics - labels.keys())
    if metrics and metrics <= labels.keys():
        shown = set().union(*(labels[metric] for metric in metrics))
        yield from (f"no label {label}: {query}" for label in wanted - shown)


def test_the_health_check_tells_whether_the_service_answers(service: str) -> None:
    def check(port: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "service.healthcheck"]
        environment = {**os.environ, "TRIFOLD_PORT": port}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert check(service.rpartition(":")[2]).returncode == 0
    nobody = check(str(free_port()))
    assert nobody.returncode == 1 and "did not answer" in nobody.stderr
