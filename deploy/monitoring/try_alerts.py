"""`python -m deploy.monitoring.try_alerts`: break a running service, and see the alert arrive.

Runs Prometheus and Alertmanager with the repository's rules and routes beside the service of this machine, loads one of
its models, stops that replica in the middle of its work (SIGSTOP, as if it hung) and Serve's controller, which would
replace it after a minute and a half, and waits until a webhook gets the page for it. Then both go on.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.request import Request, urlopen

import psutil

from deploy.monitoring.local import alertmanager, prometheus

Arrivals = queue.Queue[dict[str, Any]]
# Models that run for a while on a request, with such a request.
LONG: dict[str, tuple[str, dict[str, Any]]] = {
    "stories": ("generate", {"prompt": "Once upon a time", "max_tokens": 200, "min_tokens": 200}),
    "translate": (
        "translate",
        {"input": "The old man went down to the sea and saw the ships. " * 40, "target": "de"},
    ),
}


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
    path, body = LONG[model]
    url, headers = f"{address}/models/{model}/{path}", {"Content-Type": "application/json"}
    request = Request(url, json.dumps(body).encode(), headers)

    def ask() -> None:
        while not stop.is_set():
            try:
                with urlopen(request, timeout=300) as answer:
                    answer.read()
            except (OSError, HTTPException):
                time.sleep(1)

    for _ in range(clients):
        threading.Thread(target=ask, daemon=True).start()
    try:
        yield
    finally:
        stop.set()


def process_of(name: str) -> psutil.Process:
    """Find one of Ray's processes by the name it gives itself."""
    for process in psutil.process_iter(["cmdline"]):
        if name in " ".join(process.info["cmdline"] or []):
            return process
    raise SystemExit(f"there is no {name} on this machine; start the service first, with models that share no replica")


def victim(metrics_port: int) -> str:
    """Choose a model whose replica is not the one that answers Prometheus for the whole node."""
    exporter = next(
        connection.pid
        for connection in psutil.net_connections("tcp")
        if connection.laddr and connection.laddr.port == metrics_port and connection.status == psutil.CONN_LISTEN
    )
    return next(model for model in LONG if process_of(f"ray::ServeReplica:{model}:model").pid != exporter)


def main() -> None:
    """Break it, and wait."""
    parser = argparse.ArgumentParser(prog="python -m deploy.monitoring.try_alerts", description=__doc__)
    parser.add_argument("--address", default="http://127.0.0.1:8000")
    parser.add_argument("--metrics", default="127.0.0.1:9464")
    parser.add_argument("--patience", type=float, default=300, help="seconds to wait for the alert")
    options = parser.parse_args()
    model = victim(int(options.metrics.rpartition(":")[2]))
    processes = [process_of("ray::ServeController"), process_of(f"ray::ServeReplica:{model}:model")]
    with (
        webhook() as (receiver, arrived),
        alertmanager(receiver) as alerts,
        prometheus({"trifold": options.metrics}, alerts),
        loaded(options.address, model),
    ):
        time.sleep(5)
        for process in processes:
            process.suspend()
        stopped = time.monotonic()
        try:
            message = arrived.get(timeout=options.patience)
        finally:
            for process in processes:
                process.resume()
    sys.stdout.write(f"arrived {time.monotonic() - stopped:.0f} s after the replica of {model} stopped:\n")
    for alert in message["alerts"]:
        sys.stdout.write(json.dumps({"receiver": message["receiver"], **alert}, indent=2) + "\n")


if __name__ == "__main__":
    main()
