"""A package out of an archive, which may hold nothing else: no other folders, no links, no paths that lead out."""

from __future__ import annotations

import lzma
import re
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from model.package.manifest import FILE_PATTERN
from model.storage.errors import StorageError


def unpack(archive: Path, folder: Path, called: str) -> None:
    """Write the files of a package, at an archive's top or in its one folder, into a folder.

    Raises `StorageError`, in which the archive is `called` so, before anything is written if it holds anything else.
    """
    try:
        with tarfile.open(archive) as opened:
            for member in list(_files(opened, called)):
                content = opened.extractfile(member)
                assert content is not None, "bug: files have content"
                with content, (folder / PurePosixPath(member.name).name).open("wb") as file:
                    shutil.copyfileobj(content, file)
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
        raise StorageError(f"{called}: cannot be unpacked: {error}") from None


def _files(opened: tarfile.TarFile, called: str) -> Iterator[tarfile.TarInfo]:
    folders = set()
    for member in opened:
        path = PurePosixPath(member.name)
        if member.isdir() and len(path.parts) <= 1:
            continue
        fits = member.isreg() and len(path.parts) <= 2 and ".." not in path.parts and not path.is_absolute()
        folders.add(path.parent)
        if not (fits and re.fullmatch(FILE_PATTERN, path.name) and len(folders) == 1):
            raise StorageError(
                f"{called}: {member.name!r} is in it; an archive of a package has its files, at the top or in one "
                "folder, and nothing else"
            )
        yield member
