"""`python -m loadtests.bench_native [PACKAGE ...]`: our own operators beside ONNX Runtime's, on all cores, in turns."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from loadtests.bench_threads import AT_A_TIME_S, rate_of, workloads
from loadtests.bench_workloads import PACKAGES, THREADS
from loadtests.machine import Steal, about
from model.package import Manifest
from service.engine.providers import native_library
from service.engine.session import SessionOptions

BUNDLED = [PACKAGES / name for name in ("stories", "translate", "sentiment")]


@dataclass(frozen=True)
class Row:
    """How often a package's piece of work was done a second, by our operators and without them, in each turn."""

    package: str
    precision: str
    work: str
    own: list[float]
    plain: list[float]
    steal: float

    @property
    def ratios(self) -> list[float]:
        """How many times as fast ours were, in each turn, sorted."""
        return sorted(own / plain for own, plain in zip(self.own, self.plain, strict=True))


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_native", description=__doc__)
    parser.add_argument("packages", type=Path, nargs="*", default=BUNDLED)
    parser.add_argument("--half-cache", action="store_true", help="keep our keys and values in 16 bits")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each side at each workload")
    parser.add_argument("--json", type=Path, help="file for what was measured")
    options = parser.parse_args()
    if native_library() is None:
        sys.exit("our operators cannot be had here: they need a C++ compiler, and AVX2 or NEON")
    rows = [
        row
        for path in options.packages
        for row in asyncio.run(measure(path, options.seconds, half_cache=options.half_cache))
    ]
    Console(width=None if sys.stdout.isatty() else 120).print(table_of(rows))
    if options.json is not None:
        report = {"about": about(), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")


async def measure(package: Path, seconds: float, *, half_cache: bool = False) -> list[Row]:
    """Return a row for each workload."""
    manifest, rows = Manifest.read(package), []
    async with AsyncExitStack() as stack:
        own, plain = [
            await stack.enter_async_context(workloads(package, options))
            for options in (SessionOptions(THREADS, half_cache=half_cache), SessionOptions(THREADS, native=False))
        ]
        for name in own:
            turns: tuple[list[float], list[float]] = [], []
            steal, end = Steal(), time.perf_counter() + 2 * seconds
            while not turns[0] or time.perf_counter() < end:
                for works, rates in zip((own, plain), turns, strict=True):
                    rates.append(await rate_of(works[name], AT_A_TIME_S))
            rows.append(Row(manifest.name, manifest.precision, name, *turns, steal.share()))
    return rows


def table_of(rows: list[Row]) -> Table:
    """Return medians of turns, and of their ratios, with the middle half of these."""
    table = Table(title="pieces of work a second", title_justify="left")
    for column in ("package", "precision", "work", "our operators", "ONNX Runtime's", "ratio", "stolen"):
        table.add_column(column)
    for row in rows:
        ratios, quarter = row.ratios, len(row.ratios) // 4
        ratio = f"{median(ratios):.2f} ({ratios[quarter]:.2f}–{ratios[-1 - quarter]:.2f})"
        rates = [f"{median(turns):,.1f}" for turns in (row.own, row.plain)]
        table.add_row(row.package, row.precision, row.work, *rates, ratio, f"{row.steal:.1%}")
    return table


if __name__ == "__main__":
    main()
