"""Which threads find a core first where these are few: those that answer, then those that compute.

The event loop reads every request, refuses those that are too many, and hands on each token, and for that needs little
of a core, but at once. A thread that computes takes all that it gets. Among threads alike the loop of a busy service
would wait for a core as long as it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import get_native_id
from typing import TypeVar

# Added to the niceness of a process's first thread for those that compute: beside a thread without it, such a one has a
# quarter of a core, and all that nobody wants.
COMPUTES = 5
# The same for those whose work may wait, beside others that compute. With 10 more a thread would more often lose its
# core while it holds what the others of its process wait for, such as the interpreter: medians were as good, and p99
# twice as long.
YIELDS = COMPUTES + 5

Opened = TypeVar("Opened")


def lower(niceness: int) -> None:
    """Give this thread a niceness, counted from that of the process's first thread."""
    if sys.platform == "linux":  # where threads have a niceness of their own
        with suppress(OSError):  # a sandbox may forbid it
            own = os.getpriority(os.PRIO_PROCESS, os.getpid())
            os.setpriority(os.PRIO_PROCESS, get_native_id(), own + niceness)


def opened_to_compute(opens: Callable[[], Opened]) -> Opened:
    """Return what a function opens; the threads that it begins for that compute: they have its thread's niceness."""
    with ThreadPoolExecutor(1, "opening", lower, (COMPUTES,)) as thread:
        return thread.submit(opens).result()
