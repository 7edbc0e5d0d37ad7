"""Programs on this machine that a cluster needs beside its hosts: Redis, and what stands before the nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(command: Sequence[str], log: Path) -> Iterator[None]:
    """Run a program until left, and then kill it."""
    with log.open("w") as file:
        # Ctrl-C is for this process, which then ends the program.
        process = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, process_group=0)
    try:
        yield
    finally:
        process.kill()
        process.wait()
