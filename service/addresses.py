"""Addresses that a service listens on, of IPv4 and IPv6."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Any

HOST, PORT = "127.0.0.1", 8000  # where the service listens unless it is told otherwise


def authority(host: str, port: int) -> str:
    """Return a host and a port as in a URL, where an address of IPv6 is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name, or nothing, which is every address
        return False


def to_listen_on(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    """Return the family and the address with which a socket is bound; without a host, all of IPv4's or of IPv6's.

    Raises `OSError` for a name that nobody knows, or that is none.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except UnicodeError:  # an empty part, or one that is too long
        raise OSError(errno.EINVAL, "not a host's name") from None
    family, _, _, _, address = found[0]
    return family, address
