"""`python -m loadtests.footprint`: how long a service takes to be ready, and what it holds while nobody asks.

It starts `python -m service` on a free port of 127.0.0.1, waits until it is ready and for as long as it takes to rest,
and looks at it and all that it has started. Memory is PSS: of a page that several processes have, each has a part. On
Linux alone.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import psutil
from rich.console import Console
from rich.table import Table

from deploy.monitoring.local import free_port
from loadtests.hostile.processes import ROOT, end, processes_of
from loadtests.interrupts import end_as_by_ctrl_c
from loadtests.machine import about

READY_WITHIN_S = 300.0
_PSS = re.compile(r"^Pss:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True)
class Footprint:
    """What the processes of one kind hold together, and how much they compute while nobody asks."""

    processes: int
    memory: int  # bytes, PSS
    cores: float  # mean number of cores that they keep busy


def main() -> None:
    """Start a service, look at it, print what it takes, and end it."""
    options = parse(sys.argv[1:])
    end_as_by_ctrl_c()
    port = free_port()
    command = [sys.executable, "-m", "service", "--port", str(port)]
    command += ["--models", str(options.models)] if options.models else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TRIFOLD_METRICS_PORT": "0"}
    begun = time.monotonic()
    process = subprocess.Popen(
        command, env=environment, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, process_group=0
    )
    try:
        wait_until_ready(port, process)
        ready_s = time.monotonic() - begun
        service = psutil.Process(process.pid)
        computed_s = sum(seconds_of(each) for _, each in processes_of(service))
        time.sleep(options.settle)
        show(footprints(service, options.seconds), ready_s, computed_s)
    finally:
        end(process)


def parse(arguments: Sequence[str]) -> Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.footprint", description=__doc__)
    parser.add_argument("--models", type=Path, help="models file; the bundled models unless given")
    parser.add_argument("--settle", type=float, default=60, help="seconds to rest before it is looked at")
    parser.add_argument("--seconds", type=float, default=30, help="for which the processor's time is counted")
    return parser.parse_args(arguments)


def wait_until_ready(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until requests may come; ends this program where the service ends first, or takes too long."""
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
                if answer.status == 200:
                    return
        except (URLError, OSError):
            time.sleep(0.1)
    sys.exit(f"footprint: not ready after {READY_WITHIN_S:g} s, or ended; start the service by hand to see why")


def footprints(service: psutil.Process, seconds: float) -> Mapping[str, Footprint]:
    """Return what each kind of process of a service takes, by its name; their own time is counted for so long."""
    before = [(name, process, seconds_of(process)) for name, process in processes_of(service)]
    time.sleep(seconds)
    found: defaultdict[str, list[tuple[int, float]]] = defaultdict(list)
    for name, process, computed_s in before:
        try:
            taken = pss_of(process.pid), (seconds_of(process) - computed_s) / seconds
        except (psutil.NoSuchProcess, OSError):  # which has ended meanwhile
            continue
        found[name].append(taken)
    return {name: Footprint(len(rows), *map(sum, zip(*rows, strict=True))) for name, rows in found.items()}


def seconds_of(process: psutil.Process) -> float:
    """Return the processor's time that a process has had; 0 for one that has ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def pss_of(pid: int) -> int:
    """Return a process's memory in bytes, its part of what it shares; raises `OSError`."""
    found = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text())
    assert found is not None, "bug: Linux tells the PSS of a process that runs"
    return 1024 * int(found[1])


def show(found: Mapping[str, Footprint], ready_s: float, computed_s: float) -> None:
    """Print a row for each kind of process, the largest first, and their sum."""
    table = Table(title=f"ready after {ready_s:.1f} s, {computed_s:.1f} s of the processor's time; then at rest")
    for column in ("process", "number", "memory, MB (PSS)", "of a core"):
        table.add_column(column, justify="left" if column == "process" else "right")
    rows, each_kind = sorted(found.items(), key=lambda item: -item[1].memory), found.values()
    processes, memory = sum(each.processes for each in each_kind), sum(each.memory for each in each_kind)
    total = Footprint(processes, memory, sum(each.cores for each in each_kind))
    for name, each in [*rows, ("all", total)]:
        table.add_row(name, str(each.processes), f"{each.memory / 1e6:.0f}", f"{each.cores:.1%}")
    Console().print(table)
    machine = about()
    print(f"{machine['processor']}, {os.cpu_count()} cores, {machine['system']}, commit {machine['commit']}")


if __name__ == "__main__":
    main()
