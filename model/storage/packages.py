"""Packages from stores into folders: all files compared with their hashes, then moved to their place at once.

The manifest has the hash of every other file, so that one hash, of the manifest or of an archive, stands for all.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from model.locks import alone
from model.package import Manifest, PackageError
from model.package.files import sha256_of
from model.package.manifest import FILE_NAME
from model.package.place import ARCHIVE_NOTE, has_others, may_be_replaced, take_place
from model.storage.addresses import Address
from model.storage.archive import unpack
from model.storage.download import Downloader
from model.storage.errors import StorageError


@dataclass(frozen=True)
class StoredPackage:
    """A package in a store; `sha256` is that of the file at its address, the manifest or the archive."""

    address: Address
    sha256: str | None = None

    def check(self) -> None:
        """Raise `StorageError` where nothing but the hash could tell that it is the right one, and it is missing."""
        if self.sha256 is None and (self.address.is_archive or self.address.scheme == "http"):
            raise StorageError(
                f"{self.address}: give its sha256; only packages in folders, and not over plain http, may go without"
            )


def fetch(package: StoredPackage, folder: Path, downloader: Downloader) -> bool:
    """Bring a package to a folder, unless it is there and whole; return whether anything was brought.

    Until the new one is whole the folder has the old package, or is not there; in one with files of others, which stay,
    they are exchanged file by file. Who fetches to the same folder at the
    same time waits. Raises `StorageError`, and `ModuleNotFoundError` for a bucket where obstore is not installed.
    """
    package.check()
    folder = folder.resolve()
    if not may_be_replaced(folder):
        raise StorageError(f"{folder}: is there and is no package; nothing of it is replaced")
    if folder.is_mount():
        raise StorageError(f"{folder}: is a mount, in whose place nothing can be moved; name a folder in it")
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        with alone(
            Path(f"{partial}.lock"), lambda: downloader.report(f"{folder}: another process fetches it; waiting")
        ):
            return _fetch(package, folder, partial, downloader)
    except PackageError as error:
        raise StorageError(f"{package.address}: {error}") from None
    except OSError as error:
        raise StorageError(f"{error.filename or folder}: {error.strerror or error}") from None


def _fetch(package: StoredPackage, folder: Path, partial: Path, downloader: Downloader) -> bool:
    replaced, content = partial / "replaced", partial / "package"
    brought = False
    if not (package.sha256 and _is_in(folder, package, package.sha256)):
        shutil.rmtree(replaced, ignore_errors=True)  # of a process that was killed in the next lines
        content.mkdir(parents=True, exist_ok=True)
        brought = (_bring_archive if package.address.is_archive else _bring_files)(package, folder, content, downloader)
    if brought:
        if (folder / FILE_NAME).exists() and not has_others(folder):
            folder.rename(replaced)
        if folder.exists():  # somebody may work there, or keep other files
            take_place(content, folder)
        else:
            content.rename(folder)
    shutil.rmtree(partial, ignore_errors=True)
    return brought


def _bring_files(package: StoredPackage, folder: Path, content: Path, downloader: Downloader) -> bool:
    manifest_file = content / FILE_NAME
    downloader.download(package.address, manifest_file, package.sha256)
    if package.sha256 is None and _is_in(folder, package, sha256_of(manifest_file)):
        return False
    manifest = Manifest.read(content)
    for name, sha256 in manifest.sha256.items():
        kept = folder / name
        if kept.is_file() and sha256_of(kept) == sha256:  # of the version that is there, or what is left of this one
            shutil.copyfile(kept, content / name)
        else:
            downloader.download(package.address.beside(name), content / name, sha256)
    _remove_others(content, manifest)  # of another version, whose download ended early
    return True


def _bring_archive(package: StoredPackage, _folder: Path, content: Path, downloader: Downloader) -> bool:
    assert package.sha256 is not None, "bug: an archive without its hash is refused"
    archive = content.with_name("archive")
    downloader.download(package.address, archive, package.sha256)
    shutil.rmtree(content)
    content.mkdir()
    unpack(archive, content, str(package.address))
    _remove_others(content, Manifest.load(content))
    (content / ARCHIVE_NOTE).write_text(package.sha256)
    return True


def _remove_others(folder: Path, manifest: Manifest) -> None:
    """Remove files that are none of a package's."""
    for path in folder.iterdir():
        if path.name not in {*manifest.sha256, FILE_NAME}:
            path.unlink()


def _is_in(folder: Path, package: StoredPackage, sha256: str) -> bool:
    """Tell whether a folder has the package with this hash, and all of its files are as its manifest says."""
    try:
        if package.address.is_archive:
            same = (folder / ARCHIVE_NOTE).read_text() == sha256
        else:
            same = sha256_of(folder / FILE_NAME) == sha256
        if same:
            Manifest.load(folder)
    except (OSError, PackageError):
        return False
    return same
