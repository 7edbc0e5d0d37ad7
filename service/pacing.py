"""How long a replica that cannot start waits before it ends: Serve begins another one at once, and does so for ever.

Each beginning is a process that imports everything, takes a core from the models that are well, and leaves files of
Ray's behind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from service.draining import Draining

AT_ONCE = 3  # failures in a row that nothing is waited after: after so many Serve gives up what has never run
LONGEST_S = 60.0
LOOK_S = 0.5  # between looks whether the service shuts down


def _wait(folder: Path, seconds: float) -> None:
    """Wait, but for a service that shuts down, which would wait for this one."""
    draining, until = Draining(folder), time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not draining.has_begun:
        time.sleep(min(LOOK_S, left))
    draining.close()


@contextmanager
def paced(folder: Path | None, application: str, wait: Callable[[Path, float], None] = _wait) -> Iterator[None]:
    """Wait after a start that fails, twice as long each time; the count is kept in a folder of the node, if any."""
    counted = None if folder is None else folder / f"failed-starts-{application}"
    try:
        yield
    except Exception:
        failures = 1 + (_count(counted) if counted is not None else 0)
        if counted is not None:
            with suppress(OSError):  # a full disk
                counted.write_text(str(failures), encoding="ascii")
        if folder is not None and failures > AT_ONCE:
            wait(folder, min(LONGEST_S, 2.0 ** min(failures - AT_ONCE, 10)))
        raise
    if counted is not None:
        with suppress(OSError):
            counted.unlink()


def _count(counted: Path) -> int:
    try:
        return int(counted.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
