"""Processes that do a part of the work for another."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

CLEANING_UP_S = 5.0
ENDED = 128 + signal.SIGTERM  # the status of who was ended by it


def end_with_the_parent() -> None:
    """Let this process of multiprocessing's end when the one that started it does, in whatever way."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "bug: only for a process that another one started"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class _Pool(ProcessPoolExecutor):
    """A pool whose processes end at SIGTERM as soon as their task has cleaned up."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(_run, function, *args, **kwargs)


def _begin(begin: Callable[..., None], *given: Any) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ENDED))  # by default nothing would be cleaned up
    begin(*given)


def _run(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    try:
        return function(*args, **kwargs)
    except SystemExit:
        os._exit(ENDED)  # else the pool would take it for the task's answer, and give the process the next one


def _kill(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.kill()


@contextmanager
def pool_of(
    processes: int,
    begin: Callable[..., None] = end_with_the_parent,
    *given: Any,
    tasks_of_each: int | None = None,
) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool of new processes, which end soon if anything fails or this one is to end.

    Each calls `begin` with what is `given`, and ends after `tasks_of_each` tasks. Ended, they remove what they have
    half made; one that does not come to that within some seconds, as it computes, is killed.
    """
    context = multiprocessing.get_context("spawn")
    pool = _Pool(processes, context, _begin, (begin, *given), max_tasks_per_child=tasks_of_each)
    try:
        yield pool
    except BaseException:
        ended = multiprocessing.active_children()
        for process in ended:
            process.terminate()  # else the pool would wait for what they do
        killing = threading.Timer(CLEANING_UP_S, _kill, [ended])
        killing.start()
        pool.shutdown(cancel_futures=True)
        killing.cancel()
        raise
    else:
        pool.shutdown()
