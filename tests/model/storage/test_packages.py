"""Packages from a real server, which breaks off, refuses, and sends what is wrong."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from model.hub.names import BUNDLED
from model.package import Manifest
from model.package.manifest import FILE_NAME, sha256_of
from model.package.place import take_place
from model.storage.addresses import Address
from model.storage.download import TRIES, Downloader
from model.storage.errors import StorageError
from model.storage.packages import StoredPackage, fetch
from model.storage.stores import check_status
from tests.local_hub import LocalHub, Repository, local_hub

GRAPH = "encoder.onnx"
ARCHIVE = "fashion.tar.gz"


@dataclass
class Store:
    """A package on a server, and where it is to go."""

    hub: LocalHub
    repository: Repository
    folder: Path
    reports: list[str] = field(default_factory=list)
    pauses: list[int] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"{self.hub.address}/shop/fashion/resolve/main"

    @property
    def sha256(self) -> str:
        return sha256_of(self.repository.folder / FILE_NAME)

    def fetch(self, address: str | None = None, sha256: str | None = None) -> bool:
        package = StoredPackage(Address.parse(address or self.address), sha256 or self.sha256)
        return fetch(package, self.folder, Downloader(self.reports.append, self.pauses.append))

    def fetch_archive(self) -> bool:
        return self.fetch(f"{self.address}/{ARCHIVE}", sha256_of(self.repository.folder / ARCHIVE))

    def describe(self, description: str) -> None:
        """Put another version there, of which the manifest alone is another."""
        manifest = self.repository.folder / FILE_NAME
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "description": description}))

    def is_whole(self) -> bool:
        Manifest.load(self.folder)
        return sha256_of(self.folder / FILE_NAME) == self.sha256


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with local_hub() as hub:
        repository = Repository(Path(shutil.copytree(BUNDLED / "fashion", tmp_path / "there")))
        hub.repositories["shop/fashion"] = repository
        yield Store(hub, repository, tmp_path / "here" / "fashion")


def write_archive(store: Store, also: Mapping[str, bytes | tarfile.TarInfo] | None = None) -> None:
    with tarfile.open(store.repository.folder / ARCHIVE, "w:gz") as archive:
        for path in sorted((BUNDLED / "fashion").iterdir()):
            archive.add(path, f"fashion-2/{path.name}")
        for name, content in (also or {}).items():
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
            else:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


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


def test_an_archive_is_unpacked_and_not_brought_again(store: Store) -> None:
    write_archive(store)
    store.repository.cut_after[ARCHIVE] = 200_000

    assert store.fetch_archive()
    assert store.is_whole()
    assert store.hub.asked_for(ARCHIVE) == [None, "bytes=200000-"]
    assert not store.fetch_archive()
    assert len(store.hub.asked_for(ARCHIVE)) == 2


def test_an_archive_is_brought_again_where_another_package_was_put_into_its_place(store: Store, tmp_path: Path) -> None:
    write_archive(store)
    store.fetch_archive()
    take_place(Path(shutil.copytree(BUNDLED / "spam", tmp_path / "made")), store.folder)

    assert store.fetch_archive()
    assert store.is_whole()


def test_of_an_archive_only_the_files_of_the_package_stay(store: Store) -> None:
    write_archive(store, {"fashion-2/notes.txt": b"x"})

    assert store.fetch_archive()
    assert store.is_whole() and not (store.folder / "notes.txt").exists()


def link(name: str, to: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, to
    return member


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("../outside", b"x"),
        ("fashion-2/../../outside", b"x"),
        ("/tmp/outside", b"x"),
        ("elsewhere/file", b"x"),
        ("fashion-2/deeper/file", b"x"),
        ("fashion-2/.hidden", b"x"),
        ("fashion-2/link", link("fashion-2/link", "/etc/passwd")),
    ],
)
def test_an_archive_with_anything_but_a_package_is_refused(
    store: Store, name: str, content: bytes | tarfile.TarInfo
) -> None:
    write_archive(store, {name: content})

    with pytest.raises(StorageError, match=f"{name!r} is in it"):
        store.fetch_archive()
    assert not store.folder.exists()
    assert not list(store.folder.parent.parent.rglob("outside"))


def test_what_is_no_archive_is_refused(store: Store) -> None:
    (store.repository.folder / ARCHIVE).write_bytes(b"no archive")

    with pytest.raises(StorageError, match="cannot be unpacked"):
        store.fetch_archive()


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


def test_pauses_grow_up_to_half_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)
    for tries in range(1, TRIES + 1):
        Downloader(print).pause(tries)

    assert slept == [2, 4, 8, 16, 30, 30]


def test_a_package_takes_anothers_place_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.fetch()
    store.describe("Another one.")

    def file_by_file(*_: Path) -> None:
        raise AssertionError("whoever opens it meanwhile finds half of each")

    monkeypatch.setattr("model.storage.packages.take_place", file_by_file)
    assert store.fetch()
    assert store.is_whole()
