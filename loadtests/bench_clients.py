"""`python -m loadtests.bench_clients PACKAGE ...`: what a client's many streams and another's requests cost each other.

One client keeps many streams of a generator busy; another asks for a few tokens, waits, and asks again. For each pause
between two of its requests: the tokens a second of the many streams alone and beside it, and the time of the short
requests alone and beside the streams, all in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from loadtests.bench_workloads import engine_of
from loadtests.machine import Steal, about
from model.package import Manifest
from service.engine.engine import Engine
from service.engine.sampling_params import SamplingParams

PAUSES = (0.05, 0.2, 1.0)  # seconds
STREAMS = 48
MANY = SamplingParams(200, temperature=0)
FEW = SamplingParams(20, temperature=0)
PROMPT = 16  # tokens
TURNS = 3


@dataclass
class Row:
    """With one pause between short requests, of each turn: tokens a second of the streams, and the requests' times."""

    package: str
    pause: float
    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    short_alone: list[float] = field(default_factory=list)
    short_beside: list[float] = field(default_factory=list)
    steal: float = 0.0

    @property
    def kept(self) -> float:
        """What part of their tokens a second the streams keep: the median of the turns' ratios."""
        return median(beside / alone for alone, beside in zip(self.alone, self.beside, strict=True))


class Clients:
    """A client with many streams, and one with short requests, of one engine."""

    def __init__(self, engine: Engine, vocab_size: int) -> None:
        self._engine, self._vocab_size = engine, vocab_size
        self._rng = np.random.default_rng(0)
        self._tokens = 0  # of the streams

    @asynccontextmanager
    async def streams(self, count: int) -> AsyncGenerator[None, None]:
        """Keep so many streams busy meanwhile."""
        tasks = [asyncio.create_task(self._stream()) for _ in range(count)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def rate(self, seconds: float) -> float:
        """Return the streams' tokens a second for so long."""
        before, started = self._tokens, time.perf_counter()
        await asyncio.sleep(seconds)
        return (self._tokens - before) / (time.perf_counter() - started)

    async def short_requests(self, seconds: float, pause: float) -> list[float]:
        """Ask one short request after the other for so long, with a pause between; return the seconds of each."""
        times, end = list[float](), time.perf_counter() + seconds
        while not times or time.perf_counter() < end:
            started = time.perf_counter()
            await self._ask("short", FEW)
            times.append(time.perf_counter() - started)
            await asyncio.sleep(pause)
        return times

    async def _stream(self) -> None:
        while True:
            await self._ask("many", MANY)

    async def _ask(self, client: str, params: SamplingParams) -> None:
        prompt = self._rng.integers(5, self._vocab_size, PROMPT).tolist()
        sequence = self._engine.sequence(params, prompt)
        with self._engine.admission.admit(client, sequence.width, sequence.waiting_tokens) as permit:
            async for _, output in self._engine.run(permit, [sequence]):
                if client == "many":
                    self._tokens += len(output.tokens)


async def measure(
    package: Path, seconds: float, pauses: Sequence[float] = PAUSES, streams: int = STREAMS, turns: int = TURNS
) -> list[Row]:
    """Return the rows of a package, `seconds` for each figure of a turn."""
    manifest = Manifest.load(package)
    rows = [Row(manifest.name, pause) for pause in pauses]
    async with engine_of(package) as engine:
        clients = Clients(engine, manifest.vocab_size)
        for _ in range(turns):
            for row in rows:
                steal = Steal()
                row.short_alone += await clients.short_requests(seconds, row.pause)
                async with clients.streams(streams):
                    await clients.rate(seconds)  # until they are at their pace, and the other client counts as gone
                    row.alone.append(await clients.rate(seconds))
                    rate = asyncio.create_task(clients.rate(seconds))
                    row.short_beside += await clients.short_requests(seconds, row.pause)
                    row.beside.append(await rate)
                row.steal = max(row.steal, steal.share())
    return rows


def table_of(rows: list[Row], streams: int = STREAMS) -> Table:
    """Return the figures."""
    title = f"{streams} streams of one client beside another's requests of {FEW.max_tokens} tokens"
    table = Table(title=title, title_justify="left")
    for column in ("package", "pause, s", "tokens/s alone", "beside", "kept", "least", "request alone, ms", "beside"):
        table.add_column(column, justify="left" if column == "package" else "right")
    table.add_column("p95", justify="right")
    table.add_column("stolen", justify="right")
    for row in rows:
        least = min(beside / alone for alone, beside in zip(row.alone, row.beside, strict=True))
        table.add_row(
            row.package,
            f"{row.pause:g}",
            f"{median(row.alone):,.0f}",
            f"{median(row.beside):,.0f}",
            f"{row.kept:.2f}",
            f"{least:.2f}",
            f"{1000 * median(row.short_alone):.1f}",
            f"{1000 * median(row.short_beside):.1f}",
            f"{1000 * float(np.quantile(row.short_beside, 0.95)):.1f}",
            f"{row.steal:.1%}",
        )
    return table


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_clients", description=__doc__)
    parser.add_argument("packages", type=Path, nargs="+", help="generators")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each figure of a turn")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--json", type=Path, help="file for what was measured")
    options = parser.parse_args()
    rows = [
        row for path in options.packages for row in asyncio.run(measure(path, options.seconds, turns=options.turns))
    ]
    Console(width=None if sys.stdout.isatty() else 130).print(table_of(rows))
    if options.json is not None:
        report = {"about": about(), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
