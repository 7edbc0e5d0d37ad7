"""A package's place: which folders it may be put into, and how its files get there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from model.package.manifest import FILE_NAME, FILE_PATTERN, Manifest, PackageError

MOVING = ".moving"  # a file that is there while a package's files are moved to their place
ARCHIVE_NOTE = "archive.sha256"  # beside a package that was fetched in an archive: of which


def may_be_replaced(folder: Path) -> bool:
    """Whether nothing of anybody's would be lost with a folder's files: it is not there, is empty, or has a package.

    The package may be of whichever version, or half moved (`MOVING`); pages have a manifest.json, too.
    """
    if not folder.is_dir():
        return not folder.exists()
    names = {path.name for path in folder.iterdir()}
    if MOVING in names or all(name.startswith(".") for name in names):
        return True
    return {"format_version", "graphs"} <= _manifest_of_any_version(folder).keys()


def check_place(folder: Path) -> None:
    """Raise `PackageError` for a folder of other files, which a package would replace."""
    if not may_be_replaced(folder):
        raise PackageError(f"{folder}: has files that are no package's; name a folder that is empty or not there yet")


def take_place(made: Path, folder: Path) -> None:
    """Move a package's files into a folder on the same disk, the manifest last; nothing is left of one before."""
    (folder / MOVING).touch()
    before, names = _files_of_package(folder), {file.name for file in made.iterdir()}
    # Of a package that was half moved no manifest lists the weights, and its graphs would read them.
    leftovers = set(filter(Manifest.read(made).may_be_read, (path.name for path in folder.iterdir() if path.is_file())))
    for name in names - {FILE_NAME}:
        (made / name).replace(folder / name)
    for former in (before | leftovers | {ARCHIVE_NOTE}) - names:  # another precision's weights, or how sure it was
        (folder / former).unlink(missing_ok=True)
    (made / FILE_NAME).replace(folder / FILE_NAME)
    (folder / MOVING).unlink()


def has_others(folder: Path) -> bool:
    """Whether a folder has anything that is no package's."""
    names = {path.name for path in folder.iterdir()}
    return not names <= _files_of_package(folder) | {FILE_NAME, ARCHIVE_NOTE, MOVING}


def _files_of_package(folder: Path) -> set[str]:
    """Return the files beside its manifest that a package in a folder, of whichever version, says it has."""
    listed = _manifest_of_any_version(folder).get("sha256")
    return {name for name in listed if re.fullmatch(FILE_PATTERN, name)} if isinstance(listed, dict) else set()


def _manifest_of_any_version(folder: Path) -> dict[str, Any]:
    """Return what a folder's manifest says, unchecked; nothing where there is none."""
    try:
        said = json.loads((folder / FILE_NAME).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}
