"""The node's metrics port: one of its processes answers there for all, and another takes over when it dies."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from service.metrics import CONTENT_TYPE, Metrics

PATIENCE_S = 10.0  # with who has connected and says nothing
RETRY_S = 2.0  # how often a process without the port tries to take it


def export(metrics: Metrics, host: str, port: int) -> None:
    """Answer on the port as soon as it is free, from a thread of its own; 0 is no port at all."""
    if port:
        threading.Thread(target=_serve, args=(metrics, host, port), name="metrics", daemon=True).start()


def _serve(metrics: Metrics, host: str, port: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        timeout = PATIENCE_S

        def do_GET(self) -> None:
            page = metrics.exposition()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_: object) -> None:
            pass

    while True:
        try:
            server = ThreadingHTTPServer((host, port), Handler)
        except OSError:
            time.sleep(RETRY_S)
            continue
        server.serve_forever()
