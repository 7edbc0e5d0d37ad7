"""Processes that do a part of the work for another."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any


def end_with_the_parent() -> None:
    """Let this process of multiprocessing's end when the one that started it does, in whatever way."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "bug: only for a process that another one started"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def pool_of(
    processes: int,
    begin: Callable[..., None] = end_with_the_parent,
    *given: Any,
    tasks_of_each: int | None = None,
) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of new processes, which end at once if anything fails or this one is to end.

    Each calls `begin` with what is `given`, and ends after `tasks_of_each` tasks.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, context, begin, given, max_tasks_per_child=tasks_of_each)
    try:
        yield pool
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()  # else the pool would wait for what they do
        pool.shutdown(cancel_futures=True)
        raise
    else:
        pool.shutdown()
