from __future__ import annotations

import os
import sys
import threading

import pytest

from service.engine.priority import COMPUTES, lower, opened_to_compute

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have a niceness of their own on Linux alone")


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_what_is_opened_computes_in_threads_that_leave_the_cores_to_those_that_answer() -> None:
    found: list[int] = []

    def opens() -> threading.Thread:
        thread = threading.Thread(target=lambda: found.append(niceness()))
        thread.start()
        return thread

    before = niceness()
    opened_to_compute(opens).join()

    assert found == [min(19, os.getpriority(os.PRIO_PROCESS, os.getpid()) + COMPUTES)]
    assert niceness() == before


def test_a_thread_that_is_lowered_twice_is_as_low_as_once() -> None:
    found: list[int] = []

    def twice() -> None:
        for _ in range(2):
            lower(COMPUTES)
            found.append(niceness())

    thread = threading.Thread(target=twice)
    thread.start()
    thread.join()

    assert found[0] == found[1]


def test_what_cannot_be_opened_raises_its_own_error() -> None:
    with pytest.raises(ValueError, match="no graph"):
        opened_to_compute(lambda: int("no graph"))
