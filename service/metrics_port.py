"""The node's metrics port: one of its processes answers there for all, and another takes over when it dies."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from service.addresses import to_listen_on
from service.metrics import CONTENT_TYPE, Metrics

logger = logging.getLogger(__name__)

PATIENCE_S = 10.0  # with who has connected, in all: who says a letter now and then keeps out who has something to ask
MAX_AT_ONCE = 16  # connections, each of which has a thread; more are closed
RETRY_S = 2.0  # how often a process without the port tries to take it


def export(metrics: Metrics, host: str, port: int) -> None:
    """Answer on the port as soon as it is free, from a thread of its own; 0 is no port at all."""
    if port:
        threading.Thread(target=_serve, args=(metrics, host, port), name="metrics", daemon=True).start()


class _BoundedServer(ThreadingHTTPServer):
    """Has no more threads than `MAX_AT_ONCE`: it is in the process of a model, and asks nobody for a key."""

    def __init__(self, family: socket.AddressFamily, *args: Any) -> None:
        self._free = threading.Semaphore(MAX_AT_ONCE)
        self.address_family = family
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        end = threading.Timer(PATIENCE_S, self._hang_up, [request])
        try:
            end.start()
        except RuntimeError:  # no thread could be started; who asks again may find one
            self.shutdown_request(request)
        else:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            self._free.release()

    @staticmethod
    def _hang_up(request: Any) -> None:
        with suppress(OSError):  # it is closed already
            request.shutdown(socket.SHUT_RDWR)


def _serve(metrics: Metrics, host: str, port: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                page = metrics.exposition()
            except Exception:
                logger.exception("the page of metrics could not be made")
                self.send_error(500)
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(page)

        do_HEAD = do_GET  # noqa: N815  # the library's name for it

        def log_message(self, *_: object) -> None:
            pass

    while True:
        try:
            family, address = to_listen_on(host, port)
            server = _BoundedServer(family, address, Handler)
        except OSError:
            time.sleep(RETRY_S)
            continue
        server.serve_forever()
