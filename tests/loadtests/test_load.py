"""The whole load test, by its command line, against a server that counts what it is asked, and may not answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deploy.monitoring.local import free_port
from loadtests.sweep import LOCUSTFILE

CARD = {"id": "sentiment", "task": "classify", "image_size": None}
ANSWER = {"usage": {"prompt_tokens": 7, "completion_tokens": 0}}


def test_it_needs_nothing_that_locusts_image_has_not() -> None:
    without = (
        "import sys; sys.modules.update(dict.fromkeys(('model', 'pydantic', 'numpy', 'fastapi', 'ray', 'tokenizers')))"
    )
    told = "import loadtests.locustfile; from loadtests.machine import about; print(about()['instructions'])"
    command = [sys.executable, "-c", f"{without}; {told}"]
    done = subprocess.run(command, cwd=LOCUSTFILE.parent.parent, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


class Server(ThreadingHTTPServer):
    """Answers with one status, or never (none), and counts."""

    request_queue_size = 64

    def __init__(self, status: int | None, key: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.key = status, key
        self.bodies: list[dict[str, Any]] = []
        self.strangers = 0
        self.has_ended = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(200, {"data": [CARD]})

    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if self.server.status is None:
            self.server.has_ended.wait()
        else:
            self.answer(self.server.status, ANSWER)

    def answer(self, status: int, content: Any) -> None:
        self.server.strangers += self.headers["Authorization"] != f"Bearer {self.server.key}"
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(status: int | None) -> Iterator[Server]:
    server = Server(status, key="secret")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.has_ended.set()
        server.shutdown()
        server.server_close()


def locust(server: Server, *options: str) -> list[str]:
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary"]
    return [*command, "--host", server.address, "--api-key", server.key, *options]


def test_a_service_that_only_fails_fails_the_load_test(tmp_path: Path) -> None:
    with serving(500) as server:
        options = ("--users", "2", "--pause", "0.05", "--run-time", "1", "--report", str(tmp_path / "report.json"))
        ended = subprocess.run(locust(server, *options), capture_output=True, text=True, timeout=60, check=False)

    report = json.loads((tmp_path / "report.json").read_text())
    assert ended.returncode == 1, ended.stderr
    assert "nothing was answered" in ended.stdout and "classify: errors 100.00%" in ended.stdout
    assert report["total"]["errors"] == {"500": len(server.bodies)} and len(report["broken"]) == 2
    assert report["about"]["commit"] and report["about"]["processor"]


@pytest.mark.parametrize("arrivals", ["open", "closed"])
def test_a_service_that_hangs_fails_the_load_test_whatever_it_answered_before(arrivals: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    with serving(200) as server:
        options = ("--arrivals", arrivals, "--users", "2", "--pause", "0.05", "--run-time", "2", "--patience", "0.5")
        command = locust(server, *options, "--report", str(report))
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as load:
            while not server.bodies and load.poll() is None:
                time.sleep(0.05)
            server.status = None
            output, errors = load.communicate(timeout=60)

    total = json.loads(report.read_text())["total"]
    assert load.returncode == 1, output + errors
    assert total["unfinished"] == total["sent"] - total["answered"] > 0 and not total["errors"]
    assert f"'unfinished': {total['unfinished']}" in output


def test_a_master_adds_up_what_its_workers_count(tmp_path: Path) -> None:
    port, report = str(free_port()), tmp_path / "report.json"
    with serving(200) as server:
        rate = ("--rate", "60", "--users", "4", "--spawn-rate", "100", "--run-time", "2", "--report", str(report))
        workers = [
            subprocess.Popen(locust(server, "--worker", "--master-port", port), env=os.environ) for _ in range(2)
        ]
        try:
            master = ("--master", "--master-bind-port", port, "--expect-workers", "2", *rate)
            ended = subprocess.run(locust(server, *master), capture_output=True, text=True, timeout=60, check=False)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()

    total = json.loads(report.read_text())["total"]
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert total["sent"] == total["answered"] == len(server.bodies)
    asked = Counter(json.dumps(body) for body in server.bodies)
    assert list(asked.values()).count(1) > 0.1 * len(server.bodies), "workers ask the same, so all is asked twice"
    assert total["tokens_per_s"] == pytest.approx(7 * total["answered_per_s"])
    assert server.strangers == 0


def test_a_trace_is_replayed(tmp_path: Path) -> None:
    bodies = [{"input": f"Text {place}."} for place in range(20)]
    lines = [json.dumps({"at": place / 10, "task": "classify", "body": body}) for place, body in enumerate(bodies)]
    (tmp_path / "trace.jsonl").write_text("\n".join(lines))
    with serving(200) as server:
        options = ("--trace", str(tmp_path / "trace.jsonl"), "--trace-speed", "1")
        ended = subprocess.run(locust(server, *options), capture_output=True, text=True, timeout=60, check=False)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    came = [int(body["input"].split()[1][:-1]) for body in server.bodies]
    assert sorted(came) == list(range(20)) and came[0] < 5 and came[-1] >= 15  # one may pass another on the way


LATE = """
import time
from contextlib import contextmanager
from types import SimpleNamespace
from loadtests.load_users import ClassifyUser, run

class Client:
    @contextmanager
    def post(self, *_, **__):
        yield SimpleNamespace(status_code=200, json=lambda: {"usage": {"prompt_tokens": 7, "completion_tokens": 0}})

user = ClassifyUser.__new__(ClassifyUser)
user.client, user.headers, run.models["classify"] = Client(), {}, "sentiment"
user.request("classify", {}, streams=False, due_s=time.perf_counter() - 30)
print(*run.outcomes.by_task["classify"].seconds)
"""


def test_the_time_of_a_request_that_was_sent_late_runs_from_when_it_was_due() -> None:
    ended = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60, check=True)

    assert 30 <= float(ended.stdout) < 60


STREAMED = """
from loadtests.load_users import answered
from loadtests.sse import Stream

usage = {"prompt_tokens": 7, "completion_tokens": 5}
print(answered(Stream(first_s=1.0, usage=usage), 3.0).per_token_s)
print(answered(Stream(first_s=1.0, usage={**usage, "completion_tokens": 1}), 3.0).per_token_s)
"""


def test_the_time_per_token_is_of_those_after_the_first() -> None:
    ended = subprocess.run([sys.executable, "-c", STREAMED], capture_output=True, text=True, timeout=60, check=True)

    assert ended.stdout.split() == ["0.5", "None"]
