"""Addresses of packages: what is none, and what of one is never shown."""

from __future__ import annotations

import pytest

from model.storage.addresses import Address
from model.storage.errors import StorageError

GRAPH = "encoder.onnx"


@pytest.mark.parametrize(
    "address",
    [
        *("ftp://reader:secret@store/a?signature=secret", "https://", "https://reader:secret@[::/a", "store/a"),
        *("https://reader:se/secret@store/a", "https://reader:secret#s@store/a", "reader:secret@store/a"),
        "https://reader:secret?s@store/a",
    ],
)
def test_what_is_no_address_is_refused_and_shows_no_secret(address: str) -> None:
    words = r"an address begins with one of https://|not an address|as %23 and \? as %3F in a password"
    with pytest.raises(StorageError, match=words) as caught:
        Address.parse(address)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["https://store:8443/models/fashion@1.2.0", "http://[::1]:9000/a@b", "https://a.b:443/c.tar?d=e@f"]
)
def test_a_port_and_an_at_sign_are_no_password(address: str) -> None:
    assert Address.parse(address).url.startswith(address.partition("?")[0])


def test_what_signs_an_address_belongs_to_every_file_and_is_never_shown() -> None:
    address = Address.parse("https://reader:secret@store/folder/manifest.json?signature=secret")

    assert address.beside(GRAPH).url == f"https://reader:secret@store/folder/{GRAPH}?signature=secret"
    assert str(address) == "https://store/folder/manifest.json"
