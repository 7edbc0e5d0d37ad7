from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from deploy.monitoring.local import free_port
from service.healthcheck import problem


class Ready(BaseHTTPRequestHandler):
    """Says that it is ready, or that it is not."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/ready" else 404)
        self.end_headers()
        self.wfile.write(b"the model is not there yet")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    """Return the port of a server that is ready."""
    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_the_service_is_asked_whatever_proxy_the_environment_names(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")

    assert problem("127.0.0.1", port) is None


def test_what_is_wrong_is_told(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ready, "status", 503)

    assert problem("127.0.0.1", port) == f"http://127.0.0.1:{port}/ready answered 503: the model is not there yet"
    free = free_port()
    for host, asked in (("0.0.0.0", "127.0.0.1"), ("::", "127.0.0.1"), ("::1", "[::1]"), ("127.0.0.2", "127.0.0.2")):
        assert (problem(host, free) or "").startswith(f"http://{asked}:{free}/ready did not answer")


def test_where_the_service_listens_is_read_as_the_settings_read_it(port: int) -> None:
    command = [sys.executable, "-m", "service.healthcheck"]
    for name in ("TRIFOLD_PORT", "trifold_port"):
        others = {each: value for each, value in os.environ.items() if each.upper() != "TRIFOLD_PORT"}
        subprocess.run(command, check=True, env={**others, name: f" {port}"})


def test_a_probe_imports_little() -> None:
    code = "import service.healthcheck, sys; sys.exit('pydantic' in sys.modules or 'tokenizers' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_wrong_setting_is_told_in_a_line() -> None:
    command = [sys.executable, "-m", "service.healthcheck"]
    environment = {**os.environ, "TRIFOLD_PORT": "abc"}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)

    assert done.returncode == 1 and done.stderr.startswith("trifold: ") and "TRIFOLD_PORT" in done.stderr
    assert len(done.stderr.splitlines()) == 1
