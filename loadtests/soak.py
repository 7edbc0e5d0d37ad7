"""`python -m loadtests.soak`: an hour of ragged, mixed traffic at four fifths of the knee, in which nothing grows.

It starts the service itself, with the bundled models, two replicas of three of them, behind HAProxy on a free port of
127.0.0.1. It finds the knee (`loadtests.sweep`) unless a rate is given, loads with 80 % of it, and looks at every
process all the time. In the least of the last ten minutes memory, file descriptors, threads and files may be 5 % more
than at minute ten, and no request may have failed; else the exit status is 1. What a service holds while more comes
than it bears, as when others need the processor for a minute, is no growth. Ray's own processes are told, and not
judged: nobody here can change them. What grows up to a bound is given a low one, which is reached before minute ten:
logs, and the cache of prompts' beginnings.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from loadtests import sweep
from loadtests.hostile.phases import wait_until_ready
from loadtests.hostile.processes import Service, Usage, make_keys, started
from loadtests.hostile.report import WORDS
from loadtests.hostile.verdicts import Verdict
from loadtests.interrupts import end_as_by_ctrl_c
from loadtests.machine import about

SHARE = 0.8  # of the knee
ALLOWED = 1.05  # of what there was at minute ten
LOOK_EVERY_S = 5.0
WINDOW_S = 60.0  # of which a figure is taken
LAST = 10  # windows at the end, the least of which counts
LOG_BYTES = 2**13  # each of Ray's logs has some kB a minute
PREFIX_CACHE_MIB = 8
WHAT = ("memory", "descriptors", "threads")
# What stands for a minute: its median; of descriptors the least, as each open connection has one.
FIGURES: Mapping[str, Callable[[Sequence[int]], float]] = {
    **dict.fromkeys(("memory", "threads", "files"), statistics.median),
    "descriptors": min,
}
SESSION = re.compile(r"/tmp/(?:trifold-\w+/)?ray/session_[\d_-]+")  # what Ray writes goes there


@dataclass(frozen=True)
class Look:
    """What a service held at one moment, by what its processes are for."""

    at_s: float  # since the load began
    ours: Mapping[str, Mapping[str, int]]
    rays: Mapping[str, int]  # of all of Ray's own processes together
    replicas: tuple[int, ...]  # the processes of models and gateway, by number
    disk: int  # bytes


def main() -> None:
    """Load for as long as asked, print what was held, and exit with 1 if it has grown or a request has failed."""
    options = parse(sys.argv[1:])
    end_as_by_ctrl_c()
    os.environ["RAY_ROTATION_MAX_BYTES"] = str(LOG_BYTES)  # what is set already stays, in `service.ray_environment`
    try:
        with started(keys := make_keys("sides"), options.threads, prefix_cache_mib=PREFIX_CACHE_MIB) as service:
            asyncio.run(wait_until_ready(service))
            looks, rate, report = soak(service, str(keys.polite[0]), options)
    except (RuntimeError, OSError, EOFError) as error:
        print(f"soak: {error or type(error).__name__}", file=sys.stderr)
        sys.exit(2)
    verdicts = judge(looks, options.settle, report)
    show(verdicts, rate, options)
    if options.json is not None:
        found = {"verdicts": [asdict(each) for each in verdicts], "looks": [asdict(each) for each in looks]}
        options.json.write_text(json.dumps({"about": about(), "rate": rate, "load": report, **found}, indent=1) + "\n")
    sys.exit(0 if all(verdict.holds is not False for verdict in verdicts) else 1)


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600, help="of load")
    parser.add_argument("--settle", type=float, default=600, help="seconds after which nothing may grow")
    parser.add_argument("--rate", type=float, help="requests/s; 80 %% of the knee, which is looked for, unless given")
    parser.add_argument("--sweep-seconds", type=float, default=20, help="of each rate, to find the knee")
    parser.add_argument("--threads", type=int, default=1, help="of each model, as there are more models than cores")
    parser.add_argument("--json", type=Path, help="file for everything that was found")
    options = parser.parse_args(arguments)
    if options.seconds < options.settle + 2 * WINDOW_S:  # the last look is a little before the end
        parser.error(f"--seconds must be at least --settle and {2 * WINDOW_S:g} s more")
    return options


def soak(service: Service, key: str, options: Namespace) -> tuple[list[Look], float, sweep.Report]:
    """Find the rate, load with it, and look until the load ends; raises `RuntimeError` where nothing is borne."""
    host = f"http://{service.address.host}:{service.address.port}"
    loading = sweep.parse(["--host", host, "--api-key", key, "--seconds", f"{options.sweep_seconds:g}"])
    rate = options.rate or SHARE * knee_of(loading)
    with tempfile.TemporaryDirectory() as folder:
        report_file = Path(folder) / "report.json"
        command = sweep.load_command(host, rate, options.seconds, report_file)
        environment = {**os.environ, "LOAD_API_KEY": key}
        load = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        looks, begun = [], time.monotonic()
        try:
            while load.poll() is None:
                looks.append(look(service, time.monotonic() - begun))
                time.sleep(LOOK_EVERY_S)
            report: sweep.Report = json.loads(report_file.read_text())
        finally:
            load.kill()
            load.wait()
    return [each for each in looks if each.at_s <= options.seconds], rate, report


def knee_of(loading: Namespace) -> float:
    """Return the knee, in requests/s, and tell how sure it is; raises `RuntimeError` where nothing is borne."""
    points = sweep.measure(loading)
    print(f"soak: {sweep.conclusion(points)}", file=sys.stderr)
    if (found := sweep.knee(points)) is None:
        raise RuntimeError(f"not even {loading.first:g} requests/s were shown to be borne")
    return found


def look(service: Service, at_s: float) -> Look:
    """Look at all processes, and at their files."""
    ours: dict[str, dict[str, int]] = {}
    rays = dict.fromkeys(WHAT, 0)
    usages = service.usage()
    for usage in usages:
        into = rays if usage.is_rays else ours.setdefault(usage.role, dict.fromkeys(WHAT, 0))
        for what in WHAT:
            into[what] += getattr(usage, what)
    replicas = tuple(usage.pid for usage in usages if usage.role.startswith(("replica", "gateway")))
    return Look(at_s, ours, rays, replicas, sum(size(folder) for folder in folders(usages)))


def folders(usages: Sequence[Usage]) -> set[Path]:
    """Return where a service's processes write: Ray's session, and the folder of its counts."""
    found: set[Path] = set()
    for usage in usages:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process = psutil.Process(usage.pid)
            found |= {Path(session) for session in SESSION.findall(" ".join(process.cmdline()))}
            if counts := process.environ().get("TRIFOLD_METRICS_DIR"):
                found.add(Path(counts))
    return found


def size(folder: Path) -> int:
    """Return how much a folder's files take, in bytes."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # it may be gone meanwhile
            total += path.lstat().st_blocks * 512
    return total


def judge(looks: Sequence[Look], settle_s: float, report: sweep.Report) -> list[Verdict]:
    """Compare the last minutes with the one that ends when everything has settled."""
    end_s = looks[-1].at_s
    before = _between(looks, settle_s - WINDOW_S, settle_s)
    ends = [end_s - WINDOW_S * index for index in range(LAST)]
    after = [_between(looks, end - WINDOW_S, end) for end in ends if end - WINDOW_S >= settle_s]
    roles = sorted({role for each in before for role in each.ours})
    grown = [
        _grown(f"{what}, {role}", what, of_role(before, role, what), [of_role(minute, role, what) for minute in after])
        for what in WHAT
        for role in roles
    ]
    disk = _grown("files", "files", [each.disk for each in before], [[each.disk for each in m] for m in after])
    of_rays = {
        what: _figures(what, [each.rays[what] for each in before], [[each.rays[what] for each in m] for m in after])
        for what in WHAT
    }
    rays = ", ".join(f"{what} × {figures[2]:.3f}" for what, figures in of_rays.items())
    total = report["total"]
    failed = sum(total["errors"].values())
    is_whole = not failed and not total["refused"] and not total["unfinished"] and total["answered"] > 0
    errors = f"{failed} of {total['sent']:,}, {total['refused']} refused, {total['unfinished']} unfinished"
    return [
        Verdict("no request fails", is_whole, errors),
        _none_began_anew(looks),
        *grown,
        disk,
        Verdict("Ray's own processes", None, rays),
    ]


def _none_began_anew(looks: Sequence[Look]) -> Verdict:
    """Ask that all replicas are those that there were: one that begins anew has grown by nothing yet."""
    gone = set(looks[0].replicas) - set(looks[-1].replicas)
    return Verdict("no replica began anew", not gone, f"{len(gone)} of {len(looks[0].replicas)}")


def of_role(looks: Sequence[Look], role: str, what: str) -> list[int]:
    """Return what the processes of a role held; nothing where there were none."""
    return [each.ours.get(role, {}).get(what, 0) for each in looks]


def _between(looks: Sequence[Look], begin_s: float, end_s: float) -> list[Look]:
    return [each for each in looks if begin_s < each.at_s <= end_s]


def _grown(name: str, what: str, before: Sequence[int], after: Sequence[Sequence[int]]) -> Verdict:
    first, last, ratio = _figures(what, before, after)
    return Verdict(name, ratio <= ALLOWED, f"{first:,.0f} → {last:,.0f}, × {ratio:.3f}")


def _figures(what: str, before: Sequence[int], after: Sequence[Sequence[int]]) -> tuple[float, float, float]:
    """Return what stands for the minute before, for the least of those after, and their ratio."""
    first, last = FIGURES[what](before), min(FIGURES[what](minute) for minute in after)
    return first, last, last / max(1.0, first)


def show(verdicts: Sequence[Verdict], rate: float, options: Namespace) -> None:
    """Print a line for each verdict."""
    minutes = f"{options.seconds / 60:g} minutes at {rate:.1f} requests/s"
    title = f"{minutes}; the least of the last {LAST} against minute {options.settle / 60:g}"
    table = Table(title=title, title_justify="left")
    for column in ("what may not grow", "holds", "found"):
        table.add_column(column, overflow="fold")
    for verdict in verdicts:
        table.add_row(verdict.name, WORDS[verdict.holds], verdict.found)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


if __name__ == "__main__":
    main()
