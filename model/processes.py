"""Processes that do a part of the work for another."""

from __future__ import annotations

import multiprocessing
import os
import threading


def end_with_the_parent() -> None:
    """Let this process of multiprocessing's end when the one that started it does, in whatever way."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "bug: only for a process that another one started"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
