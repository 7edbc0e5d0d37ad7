"""Probes of the real service, of which some are left by their clients."""

from __future__ import annotations

import socket
import threading
import time

import httpx
import pytest

pytestmark = pytest.mark.integration

FOR_S = 3.0


def test_probes_that_are_left_end_no_other(service: str) -> None:
    address = httpx.URL(service)
    enough = threading.Event()

    def leave() -> None:
        while not enough.wait(0.005):
            with socket.create_connection((address.host, address.port)) as connection:
                connection.sendall(b"GET /ready HTTP/1.1\r\nHost: trifold\r\n\r\n")
                time.sleep(0.002)  # so that it is under way

    leaving = [threading.Thread(target=leave) for _ in range(4)]
    for thread in leaving:
        thread.start()
    answers, until = [], time.monotonic() + FOR_S
    try:
        while time.monotonic() < until:
            answers.append(httpx.get(f"{service}/ready", timeout=30))
    finally:
        enough.set()
        for thread in leaving:
            thread.join()

    assert {(answer.status_code, answer.text if answer.is_error else "") for answer in answers} == {(200, "")}
