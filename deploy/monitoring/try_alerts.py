"""`python -m deploy.monitoring.try_alerts`: break a running service, and see the alert arrive.

Runs Prometheus and Alertmanager with the repository's rules and routes beside a service on this machine, loads a model,
stops its replica's process in the middle of its work (SIGSTOP, as a hung driver would), and waits until a webhook gets
the page for it. Then the process goes on.
"""

from __future__ import annotations

import argparse
import json
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import psutil

from deploy.monitoring.local import alertmanager, prometheus

Arrivals = queue.Queue[dict[str, Any]]


@contextmanager
def webhook() -> Iterator[tuple[str, Arrivals]]:
    """Listen for what Alertmanager sends; yields the address and what has arrived."""
    arrived: Arrivals = queue.Queue()

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # the library's name
            arrived.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Keep silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", arrived
    finally:
        server.shutdown()


@contextmanager
def loaded(address: str, model: str, clients: int = 4) -> Iterator[None]:
    """Keep some requests running at a model."""
    stop = threading.Event()
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": 200, "min_tokens": 200}).encode()
    request = Request(f"{address}/models/{model}/generate", body, {"Content-Type": "application/json"})

    def ask() -> None:
        while not stop.is_set():
            try:
                with urlopen(request, timeout=300) as answer:
                    answer.read()
            except URLError:
                time.sleep(1)

    for _ in range(clients):
        threading.Thread(target=ask, daemon=True).start()
    try:
        yield
    finally:
        stop.set()


def replica(model: str) -> psutil.Process:
    """Find the process of a model's replica."""
    for process in psutil.process_iter(["cmdline"]):
        if f"ServeReplica:{model}:model" in " ".join(process.info["cmdline"] or []):
            return process
    raise SystemExit(f"there is no replica of {model} on this machine; start the service first")


def main() -> None:
    """Break it, and wait."""
    parser = argparse.ArgumentParser(prog="python -m deploy.monitoring.try_alerts", description=__doc__)
    parser.add_argument("--address", default="http://127.0.0.1:8000")
    parser.add_argument("--metrics", default="127.0.0.1:9464")
    parser.add_argument("--model", default="stories")
    parser.add_argument("--patience", type=float, default=300, help="seconds to wait for the alert")
    options = parser.parse_args()
    process = replica(options.model)
    with (
        webhook() as (receiver, arrived),
        alertmanager(receiver) as alerts,
        prometheus({"trifold": options.metrics}, alerts),
        loaded(options.address, options.model),
    ):
        time.sleep(5)
        process.suspend()
        stopped = time.monotonic()
        try:
            message = arrived.get(timeout=options.patience)
        finally:
            if process.is_running():
                process.send_signal(signal.SIGCONT)
    sys.stdout.write(f"arrived {time.monotonic() - stopped:.0f} s after the replica stopped:\n")
    for alert in message["alerts"]:
        sys.stdout.write(json.dumps({"receiver": message["receiver"], **alert}, indent=2) + "\n")


if __name__ == "__main__":
    main()
