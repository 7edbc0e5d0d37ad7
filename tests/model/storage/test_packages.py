"""Packages from a real server, which breaks off, refuses, and sends what is wrong."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from model.hub.names import BUNDLED
from model.package import Manifest
from model.package.files import sha256_of
from model.package.manifest import FILE_NAME
from model.storage.addresses import Address
from model.storage.download import Downloader
from model.storage.errors import StorageError
from model.storage.packages import StoredPackage, fetch
from tests.model.storage.conftest import GRAPH, Store


@pytest.mark.parametrize("end", ["", "/", f"/{FILE_NAME}", f"/{FILE_NAME}?signature=secret"])
def test_a_package_comes_from_its_folder_or_its_manifest(store: Store, end: str) -> None:
    assert store.fetch(store.address + end)

    assert store.is_whole()
    assert [path.name for path in store.folder.parent.iterdir() if path.suffix != ".lock"] == ["fashion"]


def test_a_package_that_is_there_is_not_asked_for_again(store: Store) -> None:
    store.fetch()
    store.hub.requests.clear()

    assert not store.fetch()
    assert store.hub.requests == []


def test_a_corrupted_file_is_refused_and_nothing_of_it_is_served(store: Store) -> None:
    content = (store.repository.folder / GRAPH).read_bytes()
    store.repository.content_instead[GRAPH] = b"\0" + content[1:]

    with pytest.raises(StorageError, match=f"{GRAPH}: its sha256 is .*, not .*; nothing of it was kept"):
        store.fetch()
    assert not store.folder.exists()
    assert not list(store.folder.parent.rglob(f"{GRAPH}*"))

    store.repository.content_instead.clear()
    store.fetch()
    assert store.is_whole()


def test_the_old_package_stays_until_the_new_one_is_whole(store: Store) -> None:
    store.fetch()
    old = store.sha256
    store.describe("Another one.")
    store.hub.requests.clear()
    store.repository.refusals = [404]

    with pytest.raises(StorageError):
        store.fetch()
    assert sha256_of(store.folder / FILE_NAME) == old

    assert store.fetch()
    assert store.is_whole()
    assert store.hub.asked_for(GRAPH) == []  # the same as before


def test_a_file_that_was_damaged_here_is_the_only_one_that_is_brought_again(store: Store) -> None:
    store.fetch()
    (store.folder / GRAPH).write_bytes(b"damaged")
    store.hub.requests.clear()

    assert store.fetch()
    assert store.is_whole()
    assert {path.rpartition("/")[2] for _, path, _ in store.hub.requests} == {FILE_NAME, GRAPH}


def test_another_manifest_than_the_one_wanted_is_refused(store: Store) -> None:
    with pytest.raises(StorageError, match=f"{FILE_NAME}: its sha256 is"):
        store.fetch(sha256="0" * 64)
    assert not store.folder.exists()


def test_what_a_process_left_that_was_killed_at_its_end_is_removed(store: Store) -> None:
    store.fetch()
    partial = store.folder.with_name(".fashion.partial")
    shutil.copytree(store.folder, partial / "replaced")

    assert not store.fetch()
    assert not partial.exists()

    shutil.copytree(store.folder, partial / "replaced")
    (store.folder / GRAPH).write_bytes(b"damaged")
    assert store.fetch()
    assert store.is_whole()
    assert not partial.exists()


def test_an_empty_folder_may_be_there(store: Store) -> None:
    store.folder.mkdir(parents=True)

    assert store.fetch()
    assert store.is_whole()


def test_somebody_may_work_in_the_empty_folder(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.folder.mkdir(parents=True)
    monkeypatch.chdir(store.folder)

    assert store.fetch()
    assert Manifest.load(Path.cwd()).name == "fashion"


def test_files_of_others_stay(store: Store) -> None:
    (store.folder / ".git").mkdir(parents=True)
    (store.folder / ".git" / "HEAD").write_text("ref: refs/heads/main")

    for description in ("of now", "of then"):
        store.describe(description)
        assert store.fetch()
        assert store.is_whole() and (store.folder / ".git" / "HEAD").read_text() == "ref: refs/heads/main"
        (store.folder / "notes.md").write_text("ours")
    assert (store.folder / "notes.md").read_text() == "ours"


def test_a_mount_is_refused_before_anything_is_downloaded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.folder.mkdir(parents=True)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == store.folder)
    with pytest.raises(StorageError, match="is a mount, in whose place nothing can be moved; name a folder in it"):
        store.fetch()

    assert store.hub.requests == []


@pytest.mark.parametrize("name", ["letters", "manifest.json"])
def test_a_folder_of_other_things_is_not_replaced(store: Store, name: str) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / name).write_text('{"name": "a page", "icons": []}')

    with pytest.raises(StorageError, match="is no package"):
        store.fetch()
    assert (store.folder / name).exists()


@pytest.mark.parametrize("address", ["http://store/folder", "https://store/package.tar", "s3://store/package.tgz"])
def test_only_a_package_in_a_folder_and_not_over_plain_http_may_go_without_its_hash(address: str) -> None:
    with pytest.raises(StorageError, match="give its sha256"):
        StoredPackage(Address.parse(address)).check()

    StoredPackage(Address.parse("https://store/folder")).check()


@pytest.fixture
def buckets(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what asks for buckets ask the store."""
    for name, value in {
        "GOOGLE_BASE_URL": store.hub.address,
        "GOOGLE_SKIP_SIGNATURE": "true",
        "AWS_ENDPOINT_URL": store.hub.address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("buckets")
def test_of_a_package_without_a_hash_only_the_manifest_is_asked_for_until_it_is_another(store: Store) -> None:
    package = StoredPackage(Address.parse("s3://shop/fashion/resolve/main"))
    downloader = Downloader(store.reports.append, store.pauses.append)
    assert fetch(package, store.folder, downloader)
    assert store.is_whole()
    store.hub.requests.clear()

    assert not fetch(package, store.folder, downloader)
    assert {path.rpartition("/")[2] for _, path, _ in store.hub.requests} == {FILE_NAME}
    assert [path.name for path in store.folder.parent.iterdir() if path.suffix != ".lock"] == ["fashion"]

    store.describe("Another one.")
    assert fetch(package, store.folder, downloader)
    assert store.is_whole()


@pytest.mark.usefixtures("buckets")
@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_package_comes_out_of_a_bucket(store: Store, scheme: str) -> None:
    store.repository.cut_after[GRAPH] = 200_000

    assert store.fetch(f"{scheme}://shop/fashion/resolve/main")
    assert store.is_whole()
    whole, rest = store.hub.asked_for(GRAPH)  # what was underway when the connection broke may be lost
    assert whole is None and rest is not None and 0 < int(rest.removeprefix("bytes=").removesuffix("-")) <= 200_000

    # A process was ended between the last byte and the hash, and another left a file that was larger.
    for beyond in (b"", b"more"):
        part = store.folder.with_name(f".{store.folder.name}.partial") / "package" / f"{GRAPH}.part"
        part.parent.mkdir(parents=True)
        part.write_bytes((store.repository.folder / GRAPH).read_bytes() + beyond)
        shutil.rmtree(store.folder)
        assert store.fetch(f"{scheme}://shop/fashion/resolve/main")
        assert store.is_whole()

    store.repository.refusals = [405]
    with pytest.raises(StorageError, match=rf"{scheme}://shop/fashion/.*405"):
        store.fetch(f"{scheme}://shop/fashion/resolve/main", sha256="0" * 64)
    store.repository.refusals = [403]
    with pytest.raises(StorageError, match=rf"{scheme}://shop/fashion/.*may not be read; credentials"):
        store.fetch(f"{scheme}://shop/fashion/resolve/main", sha256="0" * 64)
    with pytest.raises(StorageError, match=rf"{scheme}://shop/fashion/.*no such file"):
        store.fetch(f"{scheme}://shop/fashion/resolve/main/nowhere", sha256="0" * 64)


def test_what_was_brought_of_another_version_is_none_of_this_one(store: Store) -> None:
    partial = store.folder.with_name(f".{store.folder.name}.partial") / "package"
    partial.mkdir(parents=True)
    (partial / "encoder.onnx.data").write_bytes(b"of a version that was given up")

    store.fetch()

    assert store.is_whole()
    assert {path.name for path in store.folder.iterdir()} == {path.name for path in (BUNDLED / "fashion").iterdir()}


def test_a_package_takes_anothers_place_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.fetch()
    store.describe("Another one.")

    def file_by_file(*_: Path) -> None:
        raise AssertionError("whoever opens it meanwhile finds half of each")

    monkeypatch.setattr("model.storage.packages.take_place", file_by_file)
    assert store.fetch()
    assert store.is_whole()
