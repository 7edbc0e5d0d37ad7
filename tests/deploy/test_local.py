from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from deploy.monitoring.local import alertmanager, end, free_port, prometheus

HAS_ALERTMANAGER = shutil.which("alertmanager") or shutil.which("prometheus-alertmanager")
NEXT_PORT = """
import secrets
from deploy.monitoring.local import free_port
chosen = iter(({first}, {first} + 1, {first} + 2, {first} + 3))
secrets.randbelow = lambda _: next(chosen) - 20_000
print(free_port())
"""


class Page(BaseHTTPRequestHandler):
    """A page of metrics with one gauge."""

    def do_GET(self) -> None:  # the library's name
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(b'trifold_kv_slots{model="stories"} 64\n')

    def log_message(self, *_: object) -> None:
        """Keep silent."""


def test_a_port_is_given_to_one_process_alone_before_anybody_listens_there() -> None:
    port = free_port()
    command = [sys.executable, "-c", NEXT_PORT.format(first=port)]
    other = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert other != port


@pytest.mark.skipif(not (shutil.which("prometheus") and HAS_ALERTMANAGER), reason="needs prometheus and alertmanager")
def test_prometheus_runs_over_a_target_with_the_repositorys_rules_and_routes() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    start = time.time()
    try:
        with (
            alertmanager("http://127.0.0.1:1") as alerts,
            prometheus({"trifold": f"127.0.0.1:{server.server_port}"}, alerts) as source,
        ):
            deadline = time.monotonic() + 30
            while not (lines := source.series("sum by (model) (trifold_kv_slots)", start, time.time())):
                assert time.monotonic() < deadline
                time.sleep(0.5)
    finally:
        server.shutdown()
        server.server_close()

    assert {name: points[-1][1] for name, points in lines.items()} == {"stories": 64.0}


IGNORES = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"


def test_a_program_that_does_not_end_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", IGNORES], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"\n"
        with pytest.raises(subprocess.TimeoutExpired):
            end(process, timeout_s=0.1)

        assert process.poll() == -signal.SIGKILL
