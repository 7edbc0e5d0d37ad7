"""The packages that were made of checkpoints, each made once: by name, revision, precision, options and our own code.

A package is written into a folder beside its place and then moved there, under a lock: who comes meanwhile waits and
finds it. Nothing in it is ever changed, and whoever needs the space may delete any of its folders.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import uuid4

from filelock import FileLock, Timeout

from model.hub.errors import HubError
from model.hub.names import HubName
from model.locks import alone
from model.package import Manifest, PackageError

VARIABLE = "TRIFOLD_CACHE_DIR"
# Whose change makes another package of the same checkpoint.
EXPORTER = ("checked.py", "config.py", "card.py", "architectures", "checkpoints", "export", "layers", "package")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PackageCache:
    """A folder of packages, and of what branches and tags meant when they were last looked up."""

    given: Path | None = None  # none: the user's

    @property
    def folder(self) -> Path:
        """The folder: what is given, `$TRIFOLD_CACHE_DIR`, or trifold in `$XDG_CACHE_HOME` or ~/.cache.

        Raises `HubError` where there is no home, which whoever needs no cache never learns.
        """
        if self.given is not None:
            return self.given
        named = os.environ.get(VARIABLE)
        place = Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "trifold"
        try:
            return place.expanduser()
        except RuntimeError:  # a user who has no home
            raise HubError(f"there is no home folder; set {VARIABLE}") from None

    def get(self, key: str) -> Path | None:
        """Return the folder of a package that is there and whole."""
        folder = self.folder / "packages" / key
        try:
            Manifest.load(folder)
        except PackageError:
            return None
        return folder

    def get_or_make(self, key: str, make: Callable[[Path], None], report: Callable[[str], None] = print) -> Path:
        """Return a package's folder; `make` writes one that is not there into the folder it gets.

        `report` is told where another process makes it already, and this one waits.
        """
        if found := self.get(key):
            return found
        place, partial = self.folder / "packages" / key, self.folder / "partial" / key
        partial.parent.mkdir(parents=True, exist_ok=True)
        place.parent.mkdir(parents=True, exist_ok=True)
        waiting = f"{key}: another process is importing it; waiting until it is done"
        self._remove_rests()
        with alone(Path(f"{partial}.lock"), lambda: report(waiting)):
            if found := self.get(key):  # another process has made it meanwhile
                return found
            for rest in (partial, place):  # of a process that was killed, or a damaged one
                shutil.rmtree(rest, ignore_errors=True)
            make(partial)
            partial.rename(place)
        return place

    def _remove_rests(self) -> None:
        """Remove what processes that were killed left of packages, whatever code they ran: it may be gigabytes."""
        for partial in (self.folder / "partial").iterdir():
            if partial.is_dir():
                # Whoever makes it holds the lock; that of another user cannot be had.
                with suppress(Timeout, OSError), FileLock(f"{partial}.lock", timeout=0):
                    shutil.rmtree(partial, ignore_errors=True)

    def remember(self, name: HubName, commit: str, base: str | None = None) -> None:
        """Note what a branch or tag means today; of an adapter on a given base, what both do.

        Where nothing can be written, that is only logged: a package that is there can be served without a note.
        """
        if self.remembered(name, base) == commit:
            return
        place = self._note(name, base)
        partial = place.with_name(f"{place.name}.{uuid4().hex}")  # ids of processes are of one container
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(commit, encoding="utf-8")
            partial.rename(place)
        except OSError as error:
            logger.warning(
                "%s: its revision cannot be noted, by which its package is found without a network: %s", name, error
            )

    def remembered(self, name: HubName, base: str | None = None) -> str | None:
        """Return what a branch or tag meant when it was last looked up, and an adapter's commit with its base's."""
        try:
            return self._note(name, base).read_text(encoding="utf-8")
        except OSError:
            return name.revision if name.is_commit else None

    def _note(self, name: HubName, base: str | None) -> Path:
        told = str(name) if base is None else f"{name} on {base}"
        return self.folder / "revisions" / hashlib.sha256(told.encode()).hexdigest()


def key_of(name: str, **parts: object) -> str:
    """Return a package's key: its name, for people, and a digest of all that it depends on, for us."""
    described = "\n".join(
        f"{part}={value}" for part, value in sorted({**parts, "exporter": exporter_version()}.items())
    )
    return f"{name}-{hashlib.sha256(described.encode()).hexdigest()[:16]}"


@cache
def exporter_version() -> str:
    """Return a digest of the code that makes packages, so that one that was made by other code is never served."""
    root = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for name in EXPORTER:
        path = root / name
        for file in [path] if path.is_file() else sorted(path.rglob("*.py")):
            digest.update(file.relative_to(root).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()
