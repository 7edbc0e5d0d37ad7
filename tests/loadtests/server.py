"""A server that a load test is run against: it counts what it is asked, and may be slow, or never answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CARD = {"id": "sentiment", "task": "classify", "image_size": None}
ANSWER = {"usage": {"prompt_tokens": 7, "completion_tokens": 0}}


class Server(ThreadingHTTPServer):
    """Answers with one status after a delay, or never (no status), and counts; lists its model with `listing`."""

    request_queue_size = 64

    def __init__(self, status: int | None, key: str, delay_s: float, listing: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.key, self.delay_s, self.listing = status, key, delay_s, listing
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
        self.answer(self.server.listing, {"data": [CARD]})

    def do_POST(self) -> None:
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if self.server.status is None:
            self.server.has_ended.wait()
        else:
            self.server.has_ended.wait(self.server.delay_s)
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
def serving(status: int | None, delay_s: float = 0.0, listing: int = 200) -> Iterator[Server]:
    server = Server(status, "secret", delay_s, listing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.has_ended.set()
        server.shutdown()
        server.server_close()
