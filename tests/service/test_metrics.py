"""What Prometheus sees of several processes on a node, and what the metrics are."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import values

import service.metrics
import service.metrics_engine
from deploy.monitoring.local import free_port
from service.engine.observer import Load, Step
from service.metrics import BUILD, Metrics
from service.metrics_files import NodeCollector
from service.metrics_port import MAX_AT_ONCE, export
from tests.service.api.conftest import series

ROOT = Path(__file__).parent.parent.parent
LABELS = {"model", "task", "code", "phase", "reason", "client", "precision", "family", "application", "route", "le"} | {
    *BUILD
}


def test_labels_are_few_and_bounded() -> None:
    names = {label for metric in vars(Metrics()).values() for label in getattr(metric, "_labelnames", ())}

    assert names and names <= LABELS


WORKER = """
    import asyncio, sys, time
    from pathlib import Path
    from service.engine.observer import Load, Step
    from service.metrics import Metrics
    from service.metrics_port import export

    async def work():
        metrics = Metrics(Path(sys.argv[1]))
        observer = metrics.observer("stories")
        observer.watch(lambda: Load(running=2, waiting=1, queued_tokens=7, slots_used=3))
        export(metrics, "127.0.0.1", int(sys.argv[2]))
        for _ in range(5):
            observer.first_token(0.01)
            observer.stepped(Step("decode", 0.002, 2, 2, 2))
        await asyncio.sleep(0.5)
        print("ready", flush=True)
        await asyncio.sleep(60)

    asyncio.run(work())
"""


@contextmanager
def worker(directory: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", textwrap.dedent(WORKER), str(directory), str(port)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def page(port: int) -> dict[str, float]:
    deadline = time.monotonic() + 15
    while True:
        try:
            return series(httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text)
        except httpx.HTTPError:
            assert time.monotonic() < deadline, "nobody took the port over"
            time.sleep(0.1)


def test_a_nodes_processes_are_added_up_and_outlive_the_one_that_answers(tmp_path: Path) -> None:
    port = free_port()
    with worker(tmp_path, port) as first, worker(tmp_path, port):
        both = page(port)
        first.kill()
        first.wait()
        left = page(port)

    assert both['generated_tokens_total{model="stories"}'] == left['generated_tokens_total{model="stories"}'] == 10
    assert both['sequences_running{model="stories"}'] == 4
    assert left['sequences_running{model="stories"}'] == 2  # of the living alone
    assert left['step_seconds_count{model="stories",phase="decode"}'] == 10


def test_a_flood_of_scrapes_reads_the_files_of_the_node_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    reads, collect = [], NodeCollector.collect

    def counted(collector: NodeCollector) -> Any:
        reads.append(collector)
        return collect(collector)

    monkeypatch.setattr(NodeCollector, "collect", counted)
    monkeypatch.setattr(service.metrics, "FRESH_S", 3600.0)
    metrics = Metrics(tmp_path)
    metrics.client_requests.labels("billing", "200").inc()
    with ThreadPoolExecutor(8) as pool:
        pages = list(pool.map(lambda _: metrics.exposition(), range(50)))

    assert all(b"billing" in page for page in pages)
    assert len(reads) == 1


def test_the_present_of_a_node_is_read_without_its_histograms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    monkeypatch.setattr(service.metrics, "FRESH_S", 3600.0)
    metrics = Metrics(tmp_path)
    with worker(tmp_path, 0):
        at, read = metrics.present()
        again = metrics.present()
        told = {sample.name: sample.value for metric in read for sample in metric.samples}

    assert {metric.type for metric in read} == {"gauge", "counter"}
    assert told["trifold_generated_tokens_total"] == 5 and told["trifold_sequences_running"] == 2
    assert again.at == at <= time.time()  # read once for all who ask meanwhile


async def test_memory_given_back_at_rest_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service.metrics_engine, "FLUSH_S", 0.01)
    monkeypatch.setattr(service.metrics, "STATE_S", 0.02)
    metrics, taken = Metrics(), 300
    observer = metrics.observer("stories")
    observer.watch(lambda: Load(0, 0, 0, 0, kv_bytes=taken, kv_capacity_bytes=500))
    observer.stepped(Step("decode", 0.002, 2, 2, 2))

    async def until(kv_bytes: int) -> dict[str, float]:
        async with asyncio.timeout(10):
            while (page := series(metrics.exposition().decode())).get('kv_bytes{model="stories"}') != kv_bytes:  # noqa: ASYNC110  # it has no event
                await asyncio.sleep(0.01)
        return page

    await until(taken)
    taken = 0
    assert (await until(0))['kv_capacity_bytes{model="stories"}'] == 500


async def test_a_first_step_that_hangs_is_seen_though_no_step_ends_and_the_event_loop_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service.metrics, "STATE_S", 0.02)
    metrics, running = Metrics(), 0
    observer = metrics.observer("stories")
    observer.watch(lambda: Load(running, 0, 0, 0, stalled_s=running / 2))
    time.sleep(0.1)  # noqa: ASYNC251  # nothing else runs on the loop
    idle = series(metrics.exposition().decode())
    running = 3
    hanging, end = idle, time.monotonic() + 20
    while not hanging['engine_stalled_seconds{model="stories"}'] and time.monotonic() < end:
        time.sleep(0.05)  # noqa: ASYNC251
        hanging = series(metrics.exposition().decode())

    assert idle['engine_stalled_seconds{model="stories"}'] == idle['sequences_running{model="stories"}'] == 0
    assert hanging['sequences_running{model="stories"}'] == 3
    assert hanging['engine_stalled_seconds{model="stories"}'] == 1.5


def test_the_readme_explains_every_metric() -> None:
    rows = re.findall(r"^\| `trifold_(\w+)` \| (\w+) \|", (ROOT / "service/monitoring.md").read_text(), re.MULTILINE)
    declared = {}
    for family in Metrics()._registry.collect():
        name = family.name.removeprefix("trifold_")
        declared[f"{name}_total" if family.type == "counter" else name] = family.type

    assert dict(rows) == declared


def test_the_metrics_port_outlives_a_time_without_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    port = free_port()
    export(Metrics(), "127.0.0.1", port)
    page = httpx.Client(base_url=f"http://127.0.0.1:{port}", transport=httpx.HTTPTransport(retries=8))
    with page:
        assert page.get("/metrics").status_code == 200
        with monkeypatch.context() as patched:
            patched.setattr(threading.Timer, "start", refuse)
            for _ in range(MAX_AT_ONCE + 1):
                with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                    page.get("/metrics")
        assert page.get("/metrics").status_code == 200


def test_the_metrics_port_has_so_many_threads_and_no_more(tmp_path: Path) -> None:
    port = free_port()
    page = httpx.Client(base_url=f"http://127.0.0.1:{port}", transport=httpx.HTTPTransport(retries=8))
    with worker(tmp_path, port), page, ExitStack() as stack:
        assert "trifold_build_info" in page.get("/metrics").text
        assert (page.head("/metrics").status_code, page.head("/metrics").content) == (200, b"")
        silent = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(3 * MAX_AT_ONCE)]
        for each in silent:
            stack.enter_context(each)
        assert [each.recv(1) for each in silent[MAX_AT_ONCE:]] == [b""] * 2 * MAX_AT_ONCE
        for each in silent:
            each.close()
        deadline = time.monotonic() + 10
        while True:
            with suppress(httpx.RemoteProtocolError, httpx.ReadError):  # until the threads have noticed
                assert "trifold_build_info" in page.get("/metrics").text
                break
            assert time.monotonic() < deadline
