"""Packages that come in one file."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from model.hub.names import BUNDLED
from model.package.place import take_place
from model.storage.errors import StorageError
from tests.model.storage.conftest import ARCHIVE, Store


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
