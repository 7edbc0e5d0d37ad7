"""Ports of this machine: which are free, and which of them other services have, or are about to take."""

from __future__ import annotations

import errno
import socket
import sys

from service.addresses import authority, to_listen_on


def bind_error(host: str, port: int) -> str | None:
    """Return why an address cannot be listened on, or None."""
    try:
        family, address = to_listen_on(host, port)
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return f"{authority(host, port)} cannot be listened on: {error.strerror}"
    return None


class Ports:
    """The ports of one service, which others of this machine leave to it until it closes this, or its process ends."""

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def claim(self, port: int, host: str | None = None) -> bool:
        """Whether a port, of one host or on all, is this service's, rather than another's that has claimed the same.

        HAProxy takes its ports seconds after they were found to be free, and does not start where another was faster.
        So what is claimed also is a name in Linux's abstract namespace, which one process of the machine has at a time,
        whoever's it is; elsewhere there is neither. Raises `OSError` for a host that nobody knows.
        """
        if sys.platform != "linux":
            return True
        address = "*" if host is None else to_listen_on(host, port)[1][0]
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0trifold {address} {port}")
        except OSError as error:
            name.close()
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        self._held.append(name)
        return True

    def claim_any(self, host: str) -> int:
        """Return a port that is free there, and now this service's."""
        family, address = to_listen_on(host, 0)
        while True:
            with socket.socket(family) as free:
                free.bind(address)
                port: int = free.getsockname()[1]
                if self.claim(port):
                    return port

    def keep_any(self) -> int:
        """Return a free port, which only programs of this user can take, and only to share it (SO_REUSEPORT)."""
        kept = socket.socket()
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        kept.bind(("", 0))
        self._held.append(kept)
        port: int = kept.getsockname()[1]
        return port

    def close(self) -> None:
        """Leave all of them to others."""
        while self._held:
            self._held.pop().close()
