"""What the C library's malloc does with freed memory: give it back, or keep it for what soon needs as much."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# What glibc's mallopt(3) can set, and what it begins with.
TRIM_THRESHOLD, MMAP_MAX = -1, -4
INITIALLY = {TRIM_THRESHOLD: 128 * 1024, MMAP_MAX: 65536}
NEVER = -1  # a threshold that nothing reaches


@contextmanager
def keeping_freed_memory() -> Iterator[None]:
    """Let malloc keep what is freed while this lasts, and give it back in the end; only glibc's can be told to.

    Else each tensor above 32 MiB is mapped anew, and the system fills its pages with zeros one by one: that took 4 s
    of a step of 12 s in which the bundled encoder was pretrained on two cores.
    """
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        yield
        return
    libc.mallopt(MMAP_MAX, 0)
    libc.mallopt(TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        for option, value in INITIALLY.items():
            libc.mallopt(option, value)
        trim_heap()


def trim_heap() -> None:
    """Give back what the C library keeps of freed memory, for which only glibc has a call; cycles of objects first."""
    gc.collect()
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
