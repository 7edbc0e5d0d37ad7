"""How the real service treats those who are slow, and how it ends: HAProxy, gateway, replica, over real sockets."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from deploy.monitoring.local import free_port
from tests.conftest import MakePackage
from tests.integration.processes import running, wait_until_ready

pytestmark = pytest.mark.integration

HOST = "127.0.0.2" if sys.platform == "linux" else "127.0.0.1"  # another address of the machine than replicas have
# Sequences that have to take turns in one slot: some seconds for a model that is tiny.
LONG: dict[str, Any] = {"prompt": "Once", "max_tokens": 120, "min_tokens": 120, "n": 50, "seed": 1, "temperature": 1.0}


@dataclass(frozen=True)
class Service:
    """A service of one tiny model, whose process tests may end."""

    process: subprocess.Popen[bytes]
    address: str
    log: Path

    def url(self, prefix: str, path: str = "/generate") -> str:
        return f"{self.address}{prefix}{path}"


@pytest.fixture
def starting(make_package: MakePackage, tmp_path: Path) -> Iterator[Service]:
    """Start `python -m service` with short timeouts, and wait for nothing."""
    models = f"models:\n  - {{package: {make_package('stories', 'int8').folder}, max_slots: 1}}\n"
    (tmp_path / "models.yaml").write_text(models)
    port = free_port()
    environment = {
        **os.environ,
        "TRIFOLD_MODELS_FILE": str(tmp_path / "models.yaml"),
        "TRIFOLD_METRICS_PORT": "0",
        "TRIFOLD_LIMITS__BODY_TIMEOUT_S": "2",
        "TRIFOLD_LIMITS__KEEP_ALIVE_S": "0.02",
        "RAY_SERVE_HAPROXY_METRICS_PORT": str(free_port()),
        "RAY_SERVE_HAPROXY_STATS_PORT": str(free_port()),
    }
    command = [sys.executable, "-m", "service", "--host", HOST, "--port", str(port)]
    with running(command, environment, tmp_path / "log") as process:
        yield Service(process, f"http://{HOST}:{port}", tmp_path / "log")


@pytest.fixture
def service(starting: Service) -> Service:
    """Wait until it is ready."""
    wait_until_ready(starting.process, starting.address, starting.log)
    return starting


def events_of(url: str, begun: threading.Event) -> list[str]:
    with httpx.stream("POST", url, json={**LONG, "stream": True}, timeout=110) as response:
        lines = []
        for line in response.iter_lines():
            begun.set()
            lines.append(line)
    return [line for line in lines if line]


def slow_body(service: Service, prefix: str) -> str:
    """Send one byte of a body in a quarter of a second; return the answer."""
    with socket.create_connection((HOST, int(service.address.rpartition(":")[2])), timeout=10) as client:
        client.sendall(
            f"POST {prefix}/generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            "Content-Length: 1000\r\n\r\n".encode()
        )
        client.setblocking(False)
        answer, deadline = b"", time.monotonic() + 10
        while time.monotonic() < deadline:
            try:
                if not (part := client.recv(65536)):
                    break
                answer += part
            except BlockingIOError:
                client.send(b" ")
                time.sleep(0.25)
        return answer.decode()


def large_answer(service: Service) -> socket.socket:
    """Ask for more than the kernel keeps for a reader; return the connection when the answer has begun."""
    body = json.dumps({**LONG, "logprobs": 20}).encode()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(60)
    client.connect((HOST, int(service.address.rpartition(":")[2])))
    head = f"POST /generate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    client.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)
    assert client.recv(1, socket.MSG_PEEK)
    return client


def until_refused(ask: Callable[[], httpx.Response]) -> httpx.Response:
    deadline = time.monotonic() + 15
    while (answer := ask()).status_code != 503 and time.monotonic() < deadline:
        time.sleep(0.1)
    return answer


def test_who_is_slow_is_told_and_who_was_begun_is_answered_before_the_end(service: Service) -> None:
    for prefix in ("", "/models/stories"):
        answer = slow_body(service, prefix)
        assert answer.startswith("HTTP/1.1 408"), answer
        assert json.loads(answer.rpartition("\r\n\r\n")[2])["error"]["code"] == "request_timeout"

    with ThreadPoolExecutor() as pool, large_answer(service) as reader:
        begun = [threading.Event(), threading.Event()]
        streams = [
            pool.submit(events_of, service.url(prefix), event)
            for prefix, event in zip(("", "/models/stories"), begun, strict=True)
        ]
        whole: Future[httpx.Response] = pool.submit(httpx.post, service.url(""), json=LONG, timeout=110)
        assert all(event.wait(10) for event in begun)  # by a comment at least: they wait for one another
        service.process.send_signal(signal.SIGTERM)
        for prefix in ("", "/models/stories"):
            ready = until_refused(partial(httpx.get, service.url(prefix, "/ready"), timeout=5))
            assert (ready.status_code, ready.json()["error"]["code"]) == (503, "draining")
        late = until_refused(partial(httpx.post, service.url(""), json={**LONG, "n": 1}, timeout=30))
        assert (late.status_code, late.json()["error"]["code"]) == (503, "draining")
        assert not any(stream.done() for stream in streams), "they were too short to show anything"

        assert len(whole.result().json()["choices"]) == LONG["n"]
        for stream in streams:
            lines = stream.result()
            assert lines[-1] == "data: [DONE]"
            assert sum('"finish_reason"' in line for line in lines) == LONG["n"]
        assert ": keep-alive" in streams[0].result() + streams[1].result()
        time.sleep(2)  # all is computed, and this reader has yet to take most of it
        head, _, content = b"".join(iter(partial(reader.recv, 65536), b"")).partition(b"\r\n\r\n")
        assert len(content) > 5_000_000 and f"content-length: {len(content)}".encode() in head.lower()
    assert service.process.wait(timeout=30) == 0
    log = service.log.read_text()
    assert re.search(r'"event": "models opened in [0-9.]+ s".*"models": \["stories"\], "pid": [0-9]+', log)
    assert "ray.kill" not in log, "the log ends with Ray's report of what was asked for"


@pytest.mark.parametrize("stage", ["imports", "gcs_server", "raylet", "ServeController", "ServeReplica"])
def test_a_signal_during_the_start_ends_it(starting: Service, stage: str) -> None:
    children = {*children_with(stage, starting.process)} if stage != "imports" else set[psutil.Process]()
    if not children:
        time.sleep(0.7)
    starting.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + 60
    while starting.process.poll() is None and time.monotonic() < deadline:
        with suppress(psutil.Error):  # which are more, as Ray comes to the end of its start
            children |= {*psutil.Process(starting.process.pid).children(recursive=True)}
        time.sleep(0.05)

    ends = {0, -signal.SIGTERM} if stage == "imports" else {0}  # by the signal itself before the first statement
    assert starting.process.poll() in ends, starting.log.read_text()
    _, left = psutil.wait_procs([*children], timeout=20)
    assert not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]
    assert "ready at" not in (said := starting.log.read_text())
    assert "Traceback" not in said
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{starting.address}/health")


def children_with(name: str, process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    """Return all processes below this one as soon as one of them has that name."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None
        children = psutil.Process(process.pid).children(recursive=True)
        for child in children:
            with suppress(psutil.Error):
                if name in " ".join([child.name(), *child.cmdline()[:1]]):
                    return children
        time.sleep(0.01)
    raise AssertionError(f"{name} has not started")


def test_it_ends_where_ray_has_ended_and_leaves_nothing(service: Service) -> None:
    children = psutil.Process(service.process.pid).children(recursive=True)
    (raylet,) = [child for child in children if child.name() == "raylet"]
    raylet.kill()

    assert service.process.wait(timeout=60) == 1
    assert "a process of Ray's has ended, without which nothing is served" in service.log.read_text()
    _, left = psutil.wait_procs(children, timeout=20)
    assert not [process for process in left if process.status() != psutil.STATUS_ZOMBIE]


def test_a_second_signal_ends_it_at_once(service: Service) -> None:
    begun = threading.Event()
    with ThreadPoolExecutor() as pool:
        stream = pool.submit(events_of, service.url(""), begun)
        assert begun.wait(10)
        service.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(timeout=60) == 128 + signal.SIGTERM
        with pytest.raises(httpx.HTTPError):
            stream.result(timeout=10)
    with pytest.raises(httpx.ConnectError):  # nothing is left listening
        httpx.get(f"{service.address}/health")
