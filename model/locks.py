"""One process at a time: in a folder that it writes to, or at what a file stands for."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


@contextmanager
def alone_in(folder: Path, otherwise: Exception) -> Iterator[None]:
    """Hold a folder's lock, which the kernel takes back when the process dies; raises `otherwise` if another has it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise otherwise from None
        except OSError:  # some file systems lock no folders
            pass
        yield
    finally:
        os.close(handle)


@contextmanager
def alone(path: Path, report: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of a file; `report` is called first where another process holds it and this one waits."""
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        report()
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
