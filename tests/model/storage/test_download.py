"""Files from a real server, which breaks off, refuses, and asks who comes."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from model.package.manifest import FILE_NAME
from model.storage.addresses import Address
from model.storage.download import TRIES, Downloader
from model.storage.errors import StorageError
from model.storage.packages import StoredPackage, fetch
from model.storage.stores import check_status
from tests.model.storage.conftest import GRAPH, Store


def test_a_download_that_breaks_off_goes_on_where_it_ended(store: Store) -> None:
    store.repository.cut_after[GRAPH] = 200_000

    store.fetch()

    assert store.is_whole()
    assert store.hub.asked_for(GRAPH) == [None, "bytes=200000-"]
    assert store.pauses == [1]


def test_a_download_of_a_process_that_was_killed_goes_on_where_it_ended(store: Store) -> None:
    store.repository.cut_after[GRAPH], store.repository.breaks_left = 200_000, 1
    downloader = Downloader(store.reports.append, lambda _: pytest.exit("killed"))
    with pytest.raises(pytest.exit.Exception):
        fetch(StoredPackage(Address.parse(store.address), store.sha256), store.folder, downloader)
    assert not store.folder.exists()

    store.fetch()

    assert store.is_whole()
    assert store.hub.asked_for(GRAPH) == [None, "bytes=200000-"]


def test_a_download_that_breaks_off_again_and_again_goes_on_as_long_as_something_comes(store: Store) -> None:
    store.repository.cut_after[GRAPH], store.repository.breaks_left = 100_000, TRIES + 2

    store.fetch()

    assert store.is_whole()
    assert store.hub.asked_for(GRAPH)[1:] == [f"bytes={100_000 * tries}-" for tries in range(1, TRIES + 3)]
    assert store.pauses == [1] * (TRIES + 2)


@pytest.mark.parametrize("beyond", [b"", b"more"])
def test_a_file_that_lacks_only_its_name_is_taken_and_one_that_is_too_long_is_not(store: Store, beyond: bytes) -> None:
    content = (store.repository.folder / GRAPH).read_bytes() + beyond
    part = store.folder.with_name(f".{store.folder.name}.partial") / "package" / f"{GRAPH}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(content)  # of a process that was ended before it compared the hash

    store.fetch()

    assert store.is_whole()
    assert store.hub.asked_for(GRAPH) == [f"bytes={len(content)}-", *([None] if beyond else [])]


def test_where_a_store_sends_only_whole_files_a_download_begins_again(store: Store) -> None:
    store.repository.cut_after[GRAPH], store.repository.ignores_ranges = 200_000, True

    store.fetch()

    assert store.is_whole()


def test_a_store_that_sends_whole_files_and_never_gets_further_is_given_up(store: Store) -> None:
    store.repository.cut_after[GRAPH], store.repository.ignores_ranges = 200_000, True
    store.repository.breaks_left = 10 * TRIES

    with pytest.raises(StorageError, match=f"given up after {TRIES} tries"):
        store.fetch()
    assert len(store.hub.asked_for(GRAPH)) == TRIES


def test_what_may_pass_is_tried_again(store: Store) -> None:
    store.repository.refusals = [503, 429, 500]

    store.fetch()

    assert store.is_whole()
    assert store.pauses == [1, 2, 3]


def test_tries_that_bring_nothing_end(store: Store) -> None:
    store.repository.refusals = [503] * TRIES

    with pytest.raises(StorageError, match=f"given up after {TRIES} tries \\(status 503\\)"):
        store.fetch()
    assert not store.folder.exists()


@pytest.mark.parametrize(("status", "reason"), [(404, "no such file"), (403, "may not be read"), (401, "password")])
def test_what_will_not_pass_is_not_tried_again_and_shows_no_signature(store: Store, status: int, reason: str) -> None:
    store.repository.refusals = [status]

    with pytest.raises(StorageError, match=f"status {status}; .*{reason}") as caught:
        store.fetch(f"{store.address}/{FILE_NAME}?signature=secret")
    assert "secret" not in str(caught.value)
    assert store.pauses == []


def test_a_password_in_the_address_counts_more_than_a_netrc_file(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine elsewhere login reader password other")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    store.repository.is_gated = True
    with pytest.raises(StorageError, match="answered with status 403"):  # 401 where no password came at all
        store.fetch(store.address.replace("//", "//reader:secret@"))


def test_passwords_come_from_a_netrc_file(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with pytest.raises(StorageError, match=r"NETRC: .*No such file"):
        store.fetch()

    (tmp_path / "netrc").write_text("machine 127.0.0.1 login reader password secret")
    store.repository.is_gated = True  # asks for a password, and refuses this one
    with pytest.raises(StorageError, match="status 403"):
        store.fetch()


def test_an_address_that_leads_to_plain_http_is_refused() -> None:
    response = httpx2.Response(200, request=httpx2.Request("GET", "http://store/package"))

    with pytest.raises(StorageError, match="leads to plain http"):
        check_status(Address.parse("https://store/package"), response)

    over = httpx2.Response(200, request=httpx2.Request("GET", "https://store/package"), history=[response])
    with pytest.raises(StorageError, match="leads to plain http"):
        check_status(Address.parse("https://store/package"), over)


def test_pauses_grow_up_to_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    for tries in range(1, TRIES + 1):
        Downloader(print).pause(tries)

    assert slept == [2, 4, 8, 16, 30, 30]
