"""`python -m loadtests.sweep`: which rate of requests a running service bears, found by raising it up to the knee.

Each rate is one run of `loadtests/locustfile.py` in open loop, its warm-up cut. A rate is borne when enough of what was
sent kept the SLO. Rates rise by a factor until one is not, and the gap is then halved a few times. Beyond the knee
queues grow for as long as the load lasts, so figures there say little. A rate that the load generator could not send
says nothing of the service: the knee is then at least the highest rate that was borne, and below the lowest that was
sent and not borne, if there is one.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.interrupts import end_as_by_ctrl_c
from loadtests.machine import about
from loadtests.outcomes import SLO

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
USERS = 20  # who share the rate: their tasks' weights sum to 10
SENT = 0.95  # of what a rate asks for: of fewer a generator that could send no more would be measured
BOUNDS = {"latency": 2.0, "first-token": 0.5, "per-token": None}  # in seconds, unless told otherwise
HEAD = (
    "rate",
    "sent/due",
    "load's CPU",
    "answered/s",
    "good/s",
    "kept the SLO",
    "p95",
    "first token p95",
    "per token p95",
    "errors/429s/unfinished",
)
Report = dict[str, Any]  # as `loadtests.load_report` writes it


@dataclass(frozen=True)
class Point:
    """One rate, and what came of it."""

    rate: float
    is_sent: bool  # else the load generator could send no more
    is_borne: bool  # what was sent of it
    report: Report

    @property
    def is_shown(self) -> bool:
        """Whether the service has borne the whole rate."""
        return self.is_sent and self.is_borne

    @property
    def due(self) -> float:
        """How many requests the rate asked for."""
        seconds: float = self.report["seconds"]
        return self.rate * seconds


def main() -> None:
    """Sweep, print a table, and exit with 1 if not even the first rate was borne, with 2 if it was not possible."""
    options = parse(sys.argv[1:])
    end_as_by_ctrl_c()
    points: list[Point] = []

    def tell(point: Point) -> None:
        points.append(point)
        print(row(point), flush=True)
        if options.json is not None:  # each time, as somebody may end it before the last
            options.json.write_text(json.dumps({"about": about(), **as_json(points)}, indent=1) + "\n")

    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    try:
        measure(options, tell)
    except RuntimeError as error:
        print(f"sweep: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"\n{conclusion(points)}")
    sys.exit(0 if knee(points) else 1)


def parse(arguments: list[str]) -> Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.sweep", description=__doc__)
    parser.add_argument("--host", default="http://127.0.0.1:8000", help="where the service runs")
    parser.add_argument("--api-key", default=os.environ.get("LOAD_API_KEY", ""), help="of the service")
    parser.add_argument(
        "--first", type=float, default=4, help="rate to begin with, in requests/s of all tasks together"
    )
    parser.add_argument("--factor", type=float, default=2, help="by which it rises")
    parser.add_argument("--halvings", type=int, default=2, help="of the gap between the last rate borne and the next")
    parser.add_argument("--most", type=float, default=10_000, help="rate at which it stops")
    parser.add_argument("--seconds", type=float, default=30, help="of a rate, its warm-up included")
    parser.add_argument("--warm-up", type=float, default=5, help="seconds that are not counted")
    parser.add_argument("--share", type=float, default=0.99, help="of what was sent that must keep the SLO")
    for name, help_text in SLO.items():
        parser.add_argument(f"--slo-{name}", type=float, default=BOUNDS[name], help=help_text)
    parser.add_argument("--classes", nargs="*", default=[], help="users, as GenerateUser; all, unless named")
    parser.add_argument("--json", type=Path, help="file for everything that was found")
    return parser.parse_args(arguments)


def measure(options: Namespace, tell: Callable[[Point], None] = lambda _: None) -> list[Point]:
    """Sweep over a service as the options say; each point is told as soon as it is known."""

    def measured(rate: float) -> Point:
        report = run(options, rate)
        point = Point(rate, is_sent(report, rate), is_borne(report, options.share), report)
        tell(point)
        return point

    return sweep(measured, options.first, options.factor, options.halvings, options.most)


def run(options: Namespace, rate: float) -> Report:
    """Load with one rate; raises `RuntimeError` where locust tells nothing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        command = load_command(options.host, rate, options.seconds, path)
        command += ["--warm-up", f"{options.warm_up:g}", *slo_options(options), *options.classes]
        environment = {**os.environ, "LOAD_API_KEY": options.api_key}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if not path.exists():
            said = ended.stderr.strip().splitlines() or ["without a word"]
            raise RuntimeError(f"locust ended with {ended.returncode}: {said[-1]}")
        report: Report = json.loads(path.read_text())
    return report


def load_command(host: str, rate: float, seconds: float, report: Path) -> list[str]:
    """Return the command that loads a service with one rate, and writes a report."""
    return [
        *(sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary"),
        *("--host", host, "--rate", f"{rate:g}", "--users", str(USERS), "--spawn-rate", "1000"),
        *("--run-time", f"{seconds:g}", "--report", str(report)),
    ]


def slo_options(options: Namespace) -> list[str]:
    """Return locust's options for the SLO."""
    bounds = {name: getattr(options, f"slo_{name.replace('-', '_')}") for name in SLO}
    given = {name: bound for name, bound in bounds.items() if bound is not None}
    return [word for name, bound in given.items() for word in (f"--slo-{name}", f"{bound:g}")]


def sweep(
    measured: Callable[[float], Point], first: float, factor: float, halvings: int, most: float = float("inf")
) -> list[Point]:
    """Raise the rate until one is not borne, halve the gap a few times, and return all points by their rates."""
    points = [measured(first)]
    while points[-1].is_shown and points[-1].rate * factor <= most:
        points.append(measured(points[-1].rate * factor))
    below, above = knee(points), points[-1].rate
    if below is not None and not points[-1].is_shown:
        for _ in range(halvings):
            points.append(measured((below + above) / 2))
            below, above = (points[-1].rate, above) if points[-1].is_shown else (below, points[-1].rate)
    return sorted(points, key=lambda point: point.rate)


def knee(points: Sequence[Point]) -> float | None:
    """Return the highest rate that was borne and has none below it that was not, or was not sent."""
    end = limit(points)
    return max((point.rate for point in points if end is None or point.rate < end.rate), default=None)


def limit(points: Sequence[Point]) -> Point | None:
    """Return the lowest rate that was not borne, or not sent; None where there is none."""
    return min((point for point in points if not point.is_shown), key=lambda point: point.rate, default=None)


def bound(points: Sequence[Point]) -> float | None:
    """Return the lowest rate that was sent and not borne, below which the knee is; None where there is none."""
    return min((point.rate for point in points if point.is_sent and not point.is_borne), default=None)


def conclusion(points: Sequence[Point]) -> str:
    """Return what the points tell of the knee; at least one is needed."""
    found, end, above = knee(points), limit(points), bound(points)
    if end is None:
        return f"knee: at least {found:g} requests/s, the highest rate that was tried"
    if not end.is_sent and above is not None:
        place = f"between {found:g} and {above:g}" if found else f"below {above:g}"
        return f"knee: {place} requests/s; the generator did not send {end.rate:g}"
    if not end.is_sent:
        most = max(point.report["total"]["sent"] / point.report["seconds"] for point in points)
        least = f"at least {found:g} requests/s" if found else "unknown"
        return f"the generator could send no more than {most:.0f} requests/s; the knee is {least}"
    return f"knee: {found:g} requests/s" if found else f"knee: below {end.rate:g} requests/s"


def as_json(points: Sequence[Point]) -> dict[str, Any]:
    """Return all that was found; unless a rate was sent and not borne, the knee is but the least that it may be."""
    by_rate, above = sorted(points, key=lambda point: point.rate), bound(points)
    runs = [point.report | {"rate": point.rate, "is_sent": point.is_sent} for point in by_rate]
    return {"knee": knee(points), "is_at_least": above is None, "below": above, "runs": runs}


def kept(report: Report) -> float:
    """Return the share of what was sent that kept the SLO."""
    total = report["total"]
    share: float = total["good"] / max(1, total["sent"])
    return share


def is_sent(report: Report, rate: float) -> bool:
    """Whether so many were sent as the rate asks for."""
    due, sent = rate * float(report["seconds"]), int(report["total"]["sent"])
    # Requests come at random: of 100 that are due fewer than 90 come in a sixth of the runs.
    return sent >= max(1, min(SENT * due, due - 3 * math.sqrt(due)))


def is_borne(report: Report, share: float) -> bool:
    """Whether enough of what was sent kept the SLO."""
    return kept(report) >= share


def row(point: Point) -> str:
    """Return a line of the table; times in milliseconds."""
    total = point.report["total"]

    def p95(of: str) -> str:
        return f"{total[of]['p95'] * 1000:.0f} ms" if total[of] else "–"

    cells = [
        *(
            f"{point.rate:g}",
            f"{total['sent']}/{point.due:.0f}",
            f"{point.report['generator_cpu']:.0%}",
            f"{total['answered_per_s']:.1f}",
            f"{total['good_per_s']:.1f}",
            f"{kept(point.report):.1%}",
        ),
        *(p95(of) for of in ("latency_s", "first_token_s", "per_token_s")),
        f"{sum(total['errors'].values())}/{total['refused']}/{total['unfinished']}",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
