"""Servers that tests start: ended by their own pid, and killed with their children if they do not end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from deploy.monitoring.local import free_port

ROOT = Path(__file__).parent.parent.parent
READY_WITHIN_S = 240


def own_ports() -> dict[str, str]:
    """Return settings of free ports for what a service listens on beside its own address."""
    names = (
        "TRIFOLD_METRICS_PORT",
        "TRIFOLD_RAY_METRICS_PORT",
        "RAY_SERVE_HAPROXY_METRICS_PORT",
        "RAY_SERVE_HAPROXY_STATS_PORT",
    )
    return {name: str(free_port()) for name in names}


@contextmanager
def running(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in a session of its own until left; what it says goes into `log`."""
    with log.open("w") as file:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=90)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)


def wait_until_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    """Wait until a service of Ray answers; a fresh machine takes a minute."""
    deadline, last = time.monotonic() + READY_WITHIN_S, ""
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the service ended:\n{log.read_text()}"
        try:
            # Models may answer a moment before HAProxy knows their addresses, and before the end is prepared for.
            response = httpx.get(f"{address}/ready", timeout=5)
            if response.status_code == 200 and "ready at" in log.read_text():
                return
            last = response.text
        except httpx.HTTPError as error:
            last = repr(error)
        time.sleep(0.25)
    raise AssertionError(f"not ready after {READY_WITHIN_S} s, but {last}\n{log.read_text()}")
