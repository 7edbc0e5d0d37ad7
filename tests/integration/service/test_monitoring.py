"""What the running service tells those who watch it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from deploy.monitoring.local import free_port
from tests.deploy.queries import queries, unknown
from tests.integration.processes import ROOT
from tests.integration.service.asking import LONG, REQUESTS, request
from tests.integration.service.conftest import ASLEEP, HAPROXY_METRICS_PORT, METRICS_PORT, MODELS, RAY_METRICS_PORT
from tests.service.api.conftest import series

pytestmark = pytest.mark.integration

MODEL_INFO = re.compile(r'^model_info\{.*\bmodel="([^"]+)"')


def test_one_page_counts_for_every_process_of_the_node(service: str) -> None:
    counts = (
        'requests_total{code="200",model="sentiment",task="classify"}',
        'batch_rows_sum{model="sentiment",phase="encode"}',
    )

    def pages() -> list[dict[str, float]]:
        found = [httpx.get(f"http://127.0.0.1:{METRICS_PORT}/metrics", timeout=30).text]
        found += [httpx.get(f"{service}{prefix}/metrics", timeout=30).text for prefix in ("", "/models/stories")]
        return list(map(series, found))

    before = pages()
    for way in ("gateway", "/models"):  # both run in the model's replica
        asked = request(service, way, "sentiment", "/classify", {"input": "good"})
        assert httpx.request(**asked).status_code == 200
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        after = pages()
        both = zip(before, after, strict=True)
        told = [[new.get(name, 0) - old.get(name, 0) for name in counts] for old, new in both]
        if told == [[2, 2]] * 3:
            break
        time.sleep(0.2)
    assert told == [[2, 2]] * 3
    awake = MODELS.keys() - {ASLEEP}  # which tells of itself only where it was asked within the last ten minutes
    for page in after:
        told_of = [model for name in page for model in MODEL_INFO.findall(name)]
        assert awake <= set(told_of) <= MODELS.keys()  # each in a process of its own
        assert len(told_of) == len(set(told_of))


def test_alerts_and_dashboards_ask_for_metrics_and_labels_that_exist(service: str) -> None:
    for _, path, body in REQUESTS:
        httpx.post(f"{service}{path}", json=body, timeout=120)  # one of the models may have to wake
    httpx.post(f"{service}/generate", json={"prompt": "x " * 300}, timeout=30)  # refused
    cancelled = f"{service}/models/stories/generate"
    with httpx.stream("POST", cancelled, json={**LONG, "stream": True}, timeout=60) as answer:
        next(answer.iter_lines())

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


def test_the_health_check_tells_whether_the_service_answers(service: str) -> None:
    def check(port: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "service.healthcheck"]
        environment = {**os.environ, "TRIFOLD_PORT": port}
        return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert check(service.rpartition(":")[2]).returncode == 0
    nobody = check(str(free_port()))
    assert nobody.returncode == 1 and "did not answer" in nobody.stderr
