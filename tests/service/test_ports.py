from __future__ import annotations

import socket
import sys
from contextlib import closing

import pytest

from deploy.monitoring.local import free_port
from service.ports import Ports, bind_error


@pytest.mark.skipif(not socket.has_ipv6, reason="this Python has no IPv6")
def test_an_address_of_ipv6_is_listened_on_too() -> None:
    with socket.socket(socket.AF_INET6) as other:
        try:
            other.bind(("::1", 0))
        except OSError as error:
            pytest.skip(f"this machine has no IPv6: {error.strerror}")
        other.listen()
        taken = other.getsockname()[1]
        assert "::1" in (bind_error("::1", taken) or "")
    assert bind_error("::1", taken) is None


@pytest.mark.skipif(sys.platform != "linux", reason="the names are Linux's")
def test_a_port_that_a_starting_service_has_claimed_is_not_anothers_until_it_ends() -> None:
    port = free_port()
    with closing(Ports()) as other:
        with closing(Ports()) as starting:
            assert starting.claim(port)
            assert not other.claim(port)
            assert starting.claim(port, "localhost") and not other.claim(port, "127.0.0.1")
            assert other.claim(port, "127.0.0.2")
        assert other.claim(port)


def test_a_port_that_is_kept_can_be_shared_and_not_taken() -> None:
    ports = Ports()
    address = ("127.0.0.1", ports.keep_any())
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(address)
    with socket.socket() as sharing:
        sharing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as Serve's proxy does
        sharing.bind(address)
    ports.close()
    assert bind_error(*address) is None
