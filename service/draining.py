"""How a service that is shutting down tells its processes, and learns that they are done: by files of one folder.

`draining` appears first: `/ready` fails, and requests are still answered, until load balancers have noticed. Then
`closed` appears: new requests are refused, and those that have begun are finished. A process shares the lock of `busy`
while it works on any request; the kernel takes the lock back when the process dies.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)

POLL_S = 0.1
LINGER_S = 0.5  # for HAProxy to hand on the end of the last answer
OF_A_CLIENT = b"fe=http_frontend"  # in HAProxy's list of streams, in which there is who asks for the list, too


class Draining:
    """What the processes of one service know of its end; without a folder it never comes."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._requests = 0
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._begun, self._closed = folder / "draining", folder / "closed"
            self._busy = os.open(folder / "busy", os.O_RDWR | os.O_CREAT, 0o600)

    @property
    def has_begun(self) -> bool:
        """Whether the service is shutting down."""
        return self._folder is not None and self._begun.exists()

    @property
    def is_closed(self) -> bool:
        """Whether it takes no requests any more."""
        return self._folder is not None and self._closed.exists()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Hold the end back while a request is worked on."""
        self._requests += 1
        if self._requests == 1:
            self._lock(fcntl.LOCK_SH)
        try:
            yield
        finally:
            self._requests -= 1
            if self._requests == 0:
                self._lock(fcntl.LOCK_UN)

    def drain(self, notice_s: float, within_s: float) -> bool:
        """Begin, take requests for as long as the notice, refuse them, and wait; returns whether all were answered."""
        _touch(self._begun)
        time.sleep(notice_s)
        _touch(self._closed)
        deadline = time.monotonic() + within_s
        time.sleep(LINGER_S)  # for who had been let in and was not counted yet
        while not (is_idle := self._is_idle()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        time.sleep(LINGER_S)
        return is_idle

    def close(self) -> None:
        """Let go of the folder."""
        if self._folder is not None:
            os.close(self._busy)

    def _lock(self, kind: int) -> None:
        if self._folder is not None:
            fcntl.flock(self._busy, kind)  # waits for `_is_idle` at most, which is microseconds

    def _is_idle(self) -> bool:
        try:
            fcntl.flock(self._busy, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._busy, fcntl.LOCK_UN)
        return True


def _touch(file: Path) -> None:
    try:
        file.touch()
    except OSError as error:  # a disk that is full or has become read-only is no reason to cut anybody
        logger.warning("the service's processes cannot be told that it ends, and take requests on: %s", error)


def wait_for_readers(admin_socket: Path, within_s: float) -> bool:
    """Wait until HAProxy has handed on what it has, or is gone; returns whether it has.

    Ray puts the socket that it was given into a folder of the node's beside it.

    A process is done with an answer once the kernel has taken it. Its reader may be slow, and HAProxy would be killed.
    """
    deadline = time.monotonic() + within_s
    while (has_streams := _has_streams(admin_socket)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return not has_streams


def _has_streams(admin_socket: Path) -> bool:
    return any(map(_streams_of_clients, (admin_socket, *admin_socket.parent.glob(f"*/{admin_socket.name}"))))


def _streams_of_clients(admin_socket: Path) -> int:
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1)
            connection.connect(str(admin_socket))
            connection.sendall(b"show sess\n")
            told = b"".join(iter(lambda: connection.recv(65536), b""))
    except TimeoutError:  # it is busy
        return 1
    except OSError:  # there is no HAProxy, or it is gone
        return 0
    return told.count(OF_A_CLIENT)
