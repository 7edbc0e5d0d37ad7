"""Servers that tests start: ended by their own pid, and killed with their children if they do not end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from deploy.monitoring.local import free_port

ROOT = Path(__file__).parent.parent.parent
READY_WITHIN_S = 240
RAY = Path(f"/tmp/trifold-{os.getuid()}/ray")  # where Ray puts its logs


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
    """Run a server in a process group of its own until left; what it says goes into `log`."""
    with log.open("w") as file:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=90)
            finally:
                with suppress(ProcessLookupError):  # what is left of its group, also where itself ended otherwise
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def wait_until_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    """Wait until a service of Ray answers; a fresh machine takes a minute."""
    deadline = time.monotonic() + READY_WITHIN_S
    heard: Counter[str] = Counter()
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the service ended:\n{log.read_text()}"
        try:
            # Models may answer a moment before HAProxy knows their addresses, and before the end is prepared for.
            response = httpx.get(f"{address}/ready", timeout=5)
            if response.status_code == 200 and "ready at" in log.read_text():
                return
            heard[response.text] += 1
        except httpx.HTTPError as error:
            heard[repr(error)] += 1
        time.sleep(0.25)
    what = "\n".join(f"{times} times: {answer}" for answer, times in heard.items())
    raise AssertionError(f"not ready after {READY_WITHIN_S} s:\n{what}\n{log.read_text()}\n{logs_of_ray(process.pid)}")


def logs_of_ray(pid: int, lines: int = 30) -> str:
    """Return the ends of what Serve's processes have logged, of the service with this process id."""
    files = sorted(RAY.glob(f"session_*_{pid}/logs/serve/*.log"))
    return "\n".join("\n".join([f"{file.name}:", *file.read_text().splitlines()[-lines:]]) for file in files)
