from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from loadtests.chaos import hosts
from loadtests.chaos.hosts import Host

LISTENING = """
import pathlib, socket, time
listening = socket.create_server(("", 8000))
pathlib.Path("/tmp/up").touch()
time.sleep(60)
"""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """Start a host that listens on port 8000."""
    if Path(hosts.__file__).is_relative_to("/tmp"):
        pytest.skip("a host has a /tmp of its own, in which a checkout there cannot be seen")
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("hosts need root and iproute2")
    try:
        bridge = hosts.bridge()
        bridge.__enter__()
    except RuntimeError as error:
        pytest.skip(str(error))
    try:
        yield (
            made := hosts.start(
                hosts.NUMBERS[-1], ["sh", "-c", f"python3 -c '{LISTENING}' & wait"], dict(os.environ), tmp_path
            )
        )
        made.kill()
    finally:
        bridge.__exit__(None, None, None)


def test_a_host_has_its_own_ports_and_files_and_dies_whole(host: Host, tmp_path: Path) -> None:
    deadline = time.monotonic() + 20
    while not (tmp_path / "tmp" / "up").exists():  # which is /tmp/up there
        assert time.monotonic() < deadline and host.is_alive(), (tmp_path / "log").read_text()
        time.sleep(0.05)
    processes = psutil.Process(host.process.pid).children(recursive=True)
    assert len(processes) >= 2

    host.kill()

    psutil.wait_procs(processes, timeout=5)
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
    assert host.ip not in subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
