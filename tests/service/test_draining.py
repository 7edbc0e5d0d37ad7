from __future__ import annotations

import errno
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from service import draining
from service.draining import Draining


@pytest.fixture(autouse=True)
def hasten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draining, "LINGER_S", 0.01)
    monkeypatch.setattr(draining, "POLL_S", 0.01)


def test_every_process_learns_that_the_service_goes_and_then_that_it_is_closed(tmp_path: Path) -> None:
    replica, main = Draining(tmp_path / "run"), Draining(tmp_path / "run")
    assert not replica.has_begun and not replica.is_closed

    thread = threading.Thread(target=main.drain, args=(0.3, 1))
    thread.start()
    while not replica.has_begun:
        time.sleep(0.01)
    thread.join()

    assert replica.is_closed
    begun, closed = ((tmp_path / "run" / name).stat().st_mtime for name in ("draining", "closed"))
    assert closed - begun > 0.25  # before that load balancers have not noticed yet


def test_the_end_waits_for_the_requests_of_every_process(tmp_path: Path) -> None:
    replicas, main = [Draining(tmp_path) for _ in range(2)], Draining(tmp_path)
    with replicas[0].request():
        with replicas[0].request(), replicas[1].request():
            assert not main.drain(0, within_s=0.05)
        assert not main.drain(0, within_s=0.05)  # one process is done, the other is not

    assert main.drain(0, within_s=0.05)


def test_a_process_that_dies_holds_nobody_back(tmp_path: Path) -> None:
    works_for_ever = (
        "import pathlib, sys, time; from service.draining import Draining\n"
        "with Draining(pathlib.Path(sys.argv[1])).request(): print(flush=True); time.sleep(60)"
    )
    main = Draining(tmp_path)
    with subprocess.Popen([sys.executable, "-c", works_for_ever, str(tmp_path)], stdout=subprocess.PIPE) as replica:
        assert replica.stdout is not None and replica.stdout.readline()
        assert not main.drain(0, within_s=0.05)
        replica.kill()

    assert main.drain(0, within_s=0.05)


def test_without_a_folder_it_never_comes() -> None:
    nowhere = Draining(None)
    with nowhere.request():
        assert not nowhere.has_begun and not nowhere.is_closed
    nowhere.close()


def test_a_disk_that_takes_no_file_cuts_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: Path, **_how: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    main, replica = Draining(tmp_path), Draining(tmp_path)
    monkeypatch.setattr(Path, "touch", full)
    with replica.request():
        assert not main.drain(0, within_s=0.05)
    assert main.drain(0, within_s=10)
