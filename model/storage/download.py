"""One file from a store, compared with its hash: under its name stands only what is whole and right."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from model.package.files import sha256_of
from model.storage.addresses import Address
from model.storage.errors import Interrupted, StorageError
from model.storage.stores import read_from

TRIES = 6  # one after the other that bring nothing; then it is given up
MAX_PAUSE_S = 30.0
PART = ".part"  # what the name of a file ends with while it is not whole


def _pause(tries: int) -> None:
    time.sleep(min(2.0**tries, MAX_PAUSE_S))


@dataclass(frozen=True)
class Downloader:
    """Files from stores; `report` is told what takes long, `pause` waits after so many tries that brought nothing."""

    report: Callable[[str], None]
    pause: Callable[[int], None] = _pause

    def download(self, address: Address, to: Path, sha256: str | None) -> None:
        """Bring a file to a path, unless it is there; one that was interrupted, also by a kill, goes on where it ended.

        Without a hash nothing tells what is there, so it is brought anew. Raises `StorageError`; what has come by then
        is kept, unless it is wrong.
        """
        part = to.with_name(to.name + PART)
        if sha256 is None:
            part.unlink(missing_ok=True)
            self._bring(address, part)
            part.rename(to)
            return
        if to.is_file() and sha256_of(to) == sha256:
            return
        went_on = part.is_file()
        self._bring(address, part)
        if went_on and sha256_of(part) != sha256:  # its beginning may be that of an older file
            self.report(f"{address}: what was kept of it does not fit; beginning again")
            part.unlink()
            self._bring(address, part)
        found = sha256_of(part)
        if found != sha256:
            part.unlink()
            raise StorageError(f"{address}: its sha256 is {found}, not {sha256}; nothing of it was kept")
        part.rename(to)

    def _bring(self, address: Address, part: Path) -> None:
        tries, most = 0, _size(part)
        while True:
            try:
                self._append(address, part)
                return
            except Interrupted as error:
                tries = 1 if _size(part) > most else tries + 1  # a store without ranges begins anew each time
                most = max(most, _size(part))
                if tries >= TRIES:
                    raise StorageError(
                        f"{address}: given up after {TRIES} tries ({error}); start again, what came is kept"
                    ) from None
                self.report(f"{address}: interrupted at {_size(part):,} bytes ({error}); going on")
            except OSError as error:
                raise StorageError(f"{error.filename or part}: {error.strerror or error}") from None
            self.pause(tries)

    def _append(self, address: Address, part: Path) -> None:
        """Write the rest of a file to what has come of it."""
        with read_from(address, _size(part)) as rest, part.open("ab") as file:
            file.truncate(rest.start)
            for block in rest.blocks:
                file.write(block)


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0
