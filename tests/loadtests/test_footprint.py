from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from loadtests.footprint import Footprint, footprints, pss_of, show

BUSY = (
    "import subprocess, sys, time; child = subprocess.Popen([sys.executable, '-c', 'while True: pass']); time.sleep(60)"
)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells PSS on Linux alone")


def test_what_each_kind_of_process_takes_is_told_apart() -> None:
    parent = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        service = psutil.Process(parent.pid)
        while not service.children():
            assert parent.poll() is None
        found = footprints(service, seconds=0.5)
    finally:
        for process in [*service.children(), service]:
            process.kill()
        parent.wait()

    (child,) = (name for name in found if name != "python -m service")
    assert found["python -m service"].processes == found[child].processes == 1
    assert found[child].cores > found["python -m service"].cores
    assert all(1e5 < each.memory < 1e9 for each in found.values())


def test_memory_that_is_shared_counts_in_parts() -> None:
    process = psutil.Process()
    assert 0 < pss_of(process.pid) <= process.memory_info().rss * 1.1


def test_the_sum_stands_below_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    show({"a": Footprint(1, 2_000_000, 0.01), "b": Footprint(2, 3_000_000, 0.02)}, 1.5, 2.5)
    told = capsys.readouterr().out

    assert "ready after 1.5 s" in told and "5" in told.split("all")[1] and "3.0%" in told
