from __future__ import annotations

import socket

import pytest

from service.addresses import authority, is_loopback, to_listen_on


def test_addresses_of_ipv6_have_brackets_in_urls() -> None:
    assert [authority(host, 80) for host in ("::1", "127.0.0.1", "example.org")] == [
        "[::1]:80",
        "127.0.0.1:80",
        "example.org:80",
    ]


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.2", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("::", False), ("", False)],
)
def test_loopback_is_what_nobody_else_reaches(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


@pytest.mark.parametrize("host", ["a..b", "nowhere.invalid", "a" * 70])
def test_what_is_no_hosts_name_is_an_error_of_the_system(host: str) -> None:
    with pytest.raises(OSError, match=r"not a host's name|not known|[Nn]ame|resolution"):
        to_listen_on(host, 0)


@pytest.mark.parametrize("host", ["", "127.0.0.1", "localhost", "::1"])
def test_a_socket_is_bound_with_the_address_of_its_family(host: str) -> None:
    try:
        family, address = to_listen_on(host, 0)
        with socket.socket(family) as listening:
            listening.bind(address)
    except OSError as error:
        if host != "::1":
            raise
        pytest.skip(f"this machine has no IPv6: {error}")
