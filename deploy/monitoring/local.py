"""Prometheus and Alertmanager of this machine (Debian: prometheus, prometheus-alertmanager), for trying things."""

from __future__ import annotations

import atexit
import json
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

MONITORING = Path(__file__).parent


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    address: str

    def series(self, query: str, start: float, end: float, step: float = 1.0) -> dict[str, list[tuple[float, float]]]:
        """Return (time, value) points of a query's lines, each named by its labels."""
        parameters = urlencode({"query": query, "start": start, "end": end, "step": step})
        with urlopen(f"{self.address}/api/v1/query_range?{parameters}", timeout=30) as answer:
            lines = json.load(answer)["data"]["result"]
        return {
            " ".join(line["metric"].values()): [(float(at), float(value)) for at, value in line["values"]]
            for line in lines
        }


def free_port() -> int:
    """Return a port that nobody has, below those that the system gives to whoever connects to something meanwhile.

    Nobody else who asks here is given it until this process ends: it may be minutes until somebody listens there.
    """
    while True:
        port = 20_000 + secrets.randbelow(10_000)  # Ray's workers have those below, Serve's replicas above
        mark = socket.socket(type=socket.SOCK_DGRAM)  # UDP's port of that number: others see that it is taken
        with suppress(OSError), socket.socket() as probe:
            mark.bind(("127.0.0.1", port))
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            atexit.register(mark.close)
            return port
        mark.close()


@contextmanager
def prometheus(targets: dict[str, str], alertmanager: str | None = None, every: str = "1s") -> Iterator[Prometheus]:
    """Run Prometheus with the repository's rules over targets (host:port) by job, until left."""
    port = free_port()
    managers = [{"static_configs": [{"targets": [alertmanager]}]}] if alertmanager else []
    config = {
        "global": {"scrape_interval": every, "evaluation_interval": every},
        "rule_files": [str(MONITORING / "rules.yml")],
        "alerting": {"alertmanagers": managers},
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in targets.items()
        ],
    }
    with _running("prometheus", config, "--config.file", port, "--storage.tsdb.path") as address:
        yield Prometheus(address)


@contextmanager
def alertmanager(receiver: str) -> Iterator[str]:
    """Run Alertmanager with the repository's routes, all ending at the webhook `receiver`; yields its host:port."""
    config = yaml.safe_load((MONITORING / "alertmanager.yml").read_text())
    for each in config["receivers"]:
        each["webhook_configs"] = [{"url": f"{receiver}/{each['name']}"}]
    program = "alertmanager" if shutil.which("alertmanager") else "prometheus-alertmanager"
    with _running(program, config, "--config.file", free_port(), "--storage.path") as address:
        yield address.removeprefix("http://")


@contextmanager
def _running(program: str, config: Any, config_flag: str, port: int, storage_flag: str) -> Iterator[str]:
    """Run a program until left; its address."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trifold-")))
        (folder / "config.yml").write_text(yaml.safe_dump(config))
        flags = [f"{config_flag}={folder / 'config.yml'}", f"{storage_flag}={folder / 'data'}"]
        flags.append(f"--web.listen-address=127.0.0.1:{port}")
        if "alertmanager" in program:
            flags.append("--cluster.listen-address=")
        with (folder / "log").open("w") as log:
            process = subprocess.Popen([program, *flags], stdout=log, stderr=log)
        stack.callback(end, process)
        _wait_until_ready(f"http://127.0.0.1:{port}", process, folder / "log")
        yield f"http://127.0.0.1:{port}"


def end(process: subprocess.Popen[bytes], timeout_s: float = 30) -> None:
    """Ask a process to end, and kill it if it does not; raises `TimeoutExpired` then."""
    process.terminate()
    try:
        process.wait(timeout=timeout_s)
    finally:
        process.kill()
        process.wait()


def _wait_until_ready(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(120):
        try:
            with urlopen(f"{address}/-/ready", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(0.25)
        if process.poll() is not None:
            break
    raise RuntimeError(f"{process.args!r} did not start:\n{log.read_text()}")
