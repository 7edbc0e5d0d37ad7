"""The files in which a node's processes keep their counts; those of dead processes are folded into one of a kind.

Whoever reads the files folds them first, under a lock, so that every reader sees each count once and a node's files are
as many as its living processes. A journal makes folding safe against the end of the process that does it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.mmap_dict import MmapedDict
from prometheus_client.multiprocess import MultiProcessCollector

logger = logging.getLogger(__name__)

KINDS = ("counter", "histogram")  # whose values add up, whoever counted them
PARTS_OF_A_KEY = 4  # as the library writes it: metric, sample, labels, help
FIRST_BYTES = 1 << 16  # of a file, as the library makes it
FOLDED = 0  # stands for all dead processes in the name of a file; no process has this number


def process_name() -> str:
    """Return what the names of this process's files end with: its number, and when it began, in ticks since the boot.

    A number alone would be another process's, or a thread's, after a restart over files that were kept.
    """
    return _name(os.getpid())  # which is another in a fork


@cache  # as it is asked for with every count
def _name(number: int) -> str:
    return f"{number}-{_begun(number)}"


def _begun(number: int | str) -> str | None:
    """Return when a process began (`man 5 proc`, starttime), or None where there is none."""
    try:
        fields = Path(f"/proc/{number}/stat").read_bytes()  # a process's name may be cut within a character
    except OSError:
        return None
    return fields.rpartition(b")")[2].split()[19].decode()


class AllocatedDict(MmapedDict):
    """A file of counts that has its blocks before anything is written: on a full disk counts are kept without a file.

    Else the first write into memory that has no block on the disk would end the process (SIGBUS).
    """

    def __init__(self, filename: str, read_mode: bool = False) -> None:  # the library's own
        self.without_file: dict[str, tuple[float, float]] = {}  # value and time
        self._has_file = True
        try:
            if not read_mode:
                with Path(filename).open("ab") as file:
                    _allocate(file.fileno(), max(os.fstat(file.fileno()).st_size, FIRST_BYTES))
            super().__init__(filename, read_mode)
        except OSError as error:
            logger.warning("%s: %s; counts are kept without it", filename, error.strerror)
            with suppress(OSError):
                if not Path(filename).stat().st_size:  # of which no reader could make anything
                    Path(filename).unlink()
            self._has_file = False
            self._positions: dict[str, int] = {}

    def _init_value(self, key: str) -> None:
        if self._has_file:
            end = self._used + 4 + len(key.encode()) + 8 + 16  # a length, the key and its padding, value and time
            capacity = self._capacity
            while end > capacity:
                capacity *= 2
            try:
                if capacity > self._capacity:
                    _allocate(self._f.fileno(), capacity)
                super()._init_value(key)
            except OSError as error:
                logger.warning("%s: %s; %s is counted without it", self._fname, error.strerror, key)
            else:
                return
        self.without_file[key] = 0.0, 0.0

    def _is_without_file(self, key: str) -> bool:
        if key not in self._positions and key not in self.without_file:
            self._init_value(key)
        return key in self.without_file

    def read_value(self, key: str) -> Any:
        """Return a value and its time."""
        return self.without_file[key] if self._is_without_file(key) else super().read_value(key)

    def write_value(self, key: str, value: float, timestamp: float) -> None:
        """Set a value."""
        if self._is_without_file(key):
            self.without_file[key] = value, timestamp
        else:
            super().write_value(key, value, timestamp)

    def close(self) -> None:
        """Let go of the file."""
        if self._has_file:
            super().close()


def _allocate(descriptor: int, size: int) -> None:
    """Let a file have a size and all of its blocks; raises `OSError`."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)


class NodeCollector(MultiProcessCollector):
    """What all processes of a node have counted, the dead ones too, and how the living ones are.

    `kinds` are beginnings of files' names, by which less is read: histograms are most of the values.
    """

    def __init__(self, registry: CollectorRegistry | None, path: str, kinds: Sequence[str] = ("",)) -> None:
        self._kinds = kinds
        super().__init__(registry, path)

    def collect(self) -> Any:
        """Return the metrics, read while nobody folds."""
        directory = Path(self._path)
        with _locked(directory):
            _finish(directory)
            fold(directory)
            return self.merge([str(path) for kind in self._kinds for path in directory.glob(f"{kind}*.db")])


def fold(directory: Path) -> None:
    """Fold what dead processes have counted, and remove what they said of their present state."""
    for path in directory.glob("gauge_live*.db"):
        if not _is_alive(path):
            path.unlink()
    try:
        is_written = _write_journal(directory)
    except OSError as error:  # a full disk: each of them is read until there is room
        logger.warning("counts of dead processes are not folded: %s", error.strerror)
        return
    if is_written:
        _finish(directory)


def _write_journal(directory: Path) -> bool:
    """Write sums, and the journal of what they are made of, if there is anything to fold; raises `OSError`."""
    journal: dict[str, list[str]] = {}
    for kind in KINDS:
        dead = [path for path in directory.glob(f"{kind}_*.db") if not _is_alive(path) and _is_sound(path)]
        folded = directory / f"{kind}_{FOLDED}.db"
        if dead and dead != [folded]:
            _write_sums(dead, folded.with_suffix(".new"))
            journal[folded.name] = [path.name for path in dead if path != folded]
    if journal:
        written = _journal(directory).with_suffix(".new")
        written.write_text(json.dumps(journal))
        written.replace(_journal(directory))  # from here on the sums count, and no longer what they are made of
    return bool(journal)


def _finish(directory: Path) -> None:
    """Do what the journal says, again if somebody ended in the middle of it."""
    journal = _journal(directory)
    if not journal.exists():
        return
    try:
        folds = json.loads(journal.read_bytes())
    except ValueError:  # the machine died before the disk had it; what it would have removed is folded again
        logger.warning("the journal of a fold cannot be read; it is removed")
        folds = {}
    for folded, dead in folds.items():
        sums = (directory / folded).with_suffix(".new")
        if sums.exists():
            sums.replace(directory / folded)
        for name in dead:
            (directory / name).unlink(missing_ok=True)
    journal.unlink()


def _write_sums(paths: list[Path], target: Path) -> None:
    sums: dict[str, float] = defaultdict(float)
    for path in paths:
        for key, value, _timestamp, _position in MmapedDict.read_all_values_from_file(str(path)):
            sums[key] += value
    target.unlink(missing_ok=True)  # of a fold that did not come to its journal
    written = AllocatedDict(str(target))
    for key, value in sums.items():
        written.write_value(key, value, 0.0)
    written.close()
    if written.without_file:
        target.unlink(missing_ok=True)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _is_sound(path: Path) -> bool:
    """Whether a dead process's file can be read; it is removed if not, as every scrape would fail on it."""
    try:
        keys = [json.loads(key) for key, *_ in MmapedDict.read_all_values_from_file(str(path))]
        if not all(isinstance(key, list) and len(key) == PARTS_OF_A_KEY for key in keys):
            raise ValueError("a key is none")
    except (struct.error, RuntimeError, ValueError):  # too short, cut off, not text, or with a page that was lost
        logger.warning("the counts of a dead process cannot be read; they are removed", extra={"file": path.name})
        path.unlink()
        return False
    return True


def _is_alive(path: Path) -> bool:
    """Whether the process that a file's name ends with is there."""
    number, _, begun = path.stem.rpartition("_")[2].partition("-")
    return bool(begun) and _begun(number) == begun


def _journal(directory: Path) -> Path:
    return directory / "folding.json"


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the directory for this thread alone; the system takes the lock back from a process that ends."""
    with (directory / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
