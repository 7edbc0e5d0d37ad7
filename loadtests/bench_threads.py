"""`python -m loadtests.bench_threads [PACKAGE ...]`: the number of threads that is chosen, beside fixed ones.

Alone, and beside a process that never rests. The second table is of every two packages that are busy at once: how long
they take together, for the time that they take one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from loadtests.bench_workloads import ADMISSION, PACKAGES, STORIES, THREADS, engine_of
from loadtests.machine import Steal, about
from model.package import Manifest
from service.engine.batcher import Batcher
from service.engine.inputs import TextInput
from service.engine.sampling_params import SamplingParams
from service.engine.session import SessionOptions

STREAMS = (1, 8, 32)
TEXTS = ((1, 16), (1, 128), (8, 64))  # rows, tokens
NEW_TOKENS = 64
CHOSEN = 0  # threads of a session that chooses
AT_A_TIME_S = 0.2  # before the next number of threads has its turn

Work = Callable[[], Awaitable[None]]  # one piece, always the same


@dataclass(frozen=True)
class Row:
    """How often a package's piece of work was done a second, by number of threads; and what the host took meanwhile."""

    package: str
    work: str
    rates: dict[int, float]
    steal: float


@dataclass(frozen=True)
class Pair:
    """How long two packages took at once for the time of one after the other, in each turn."""

    packages: tuple[str, str]
    ratios: list[float]
    steal: float


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_threads", description=__doc__)
    parser.add_argument("packages", type=Path, nargs="*", default=[STORIES, PACKAGES / "sentiment"])
    parser.add_argument("--seconds", type=float, default=6.0, help="of each number of threads at each workload")
    parser.add_argument("--json", type=Path, help="file for what was measured")
    options = parser.parse_args()
    fixed = [threads for threads in (1, 2, 4, 8, 16, 32, 64) if threads < THREADS] + [THREADS]
    console, found = Console(width=None if sys.stdout.isatty() else 120), dict[str, list[Row]]()
    for where, company in (("alone", nullcontext()), ("beside a busy process", neighbour())):
        with company:
            found[where] = [
                row for path in options.packages for row in asyncio.run(measure(path, fixed, options.seconds))
            ]
        console.print(table_of(found[where], fixed, f"{where}, pieces of work a second"))
    pairs = [asyncio.run(together(*pair, options.seconds)) for pair in itertools.combinations(options.packages, 2)]
    if pairs:
        console.print(table_of_pairs(pairs))
    if options.json is not None:
        report = {where: [asdict(row) for row in rows] for where, rows in found.items()}
        report["at once"] = [asdict(pair) for pair in pairs]
        options.json.write_text(json.dumps({"about": about(), **report}, indent=1) + "\n")


@contextmanager
def neighbour() -> Iterator[int]:
    """Have a process beside this one that never rests; yield its id."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def workloads(package: Path, options: SessionOptions) -> AsyncIterator[dict[str, Work]]:
    """Open a package; yield what it is to do, by name."""
    manifest, rng = Manifest.load(package), np.random.default_rng(0)

    def ids(length: int) -> list[int]:
        drawn: list[int] = rng.integers(5, manifest.vocab_size, length).tolist()
        return drawn

    if "decoder" not in manifest.graphs:
        batcher = Batcher(package, manifest, options, admission=ADMISSION)

        def encode(rows: int, tokens: int) -> Work:
            texts = [TextInput(ids(tokens), [0] * tokens) for _ in range(rows)]

            async def work() -> None:
                with batcher.admission.admit("", rows, rows * tokens) as permit:
                    await batcher.run(permit, texts)

            return work

        yield {f"{rows} × {tokens} tokens": encode(rows, tokens) for rows, tokens in TEXTS}
        await batcher.close()
        return
    async with engine_of(package, options) as engine:
        params = SamplingParams(NEW_TOKENS, temperature=0)
        name = "source_ids" if "encoder" in manifest.graphs else "prompt_ids"

        def decode(streams: int) -> Work:
            prompts = [ids(16) for _ in range(streams)]

            async def stream(prompt: list[int]) -> None:
                async for _ in engine.generate(params, **{name: prompt}):
                    pass

            async def work() -> None:
                await asyncio.gather(*map(stream, prompts))

            return work

        yield {f"{streams} streams": decode(streams) for streams in STREAMS}


async def measure(package: Path, fixed: list[int], seconds: float) -> list[Row]:
    """Return a row for each workload: how often its piece was done a second, by number of threads, in turns."""
    model, rows = Manifest.read(package).name, []
    async with AsyncExitStack() as stack:
        opened = {
            threads: await stack.enter_async_context(workloads(package, SessionOptions(threads)))
            for threads in (*fixed, CHOSEN)
        }
        for name in opened[CHOSEN]:
            await rate_of(opened[CHOSEN][name], seconds)  # until it has chosen
            turns: dict[int, list[float]] = {threads: [] for threads in opened}
            steal, end = Steal(), time.perf_counter() + seconds * len(opened)
            while time.perf_counter() < end:
                for threads, works in opened.items():
                    turns[threads].append(await rate_of(works[name], AT_A_TIME_S))
            rates = {threads: median(turn) for threads, turn in turns.items()}
            rows.append(Row(model, name, rates, steal.share()))
    return rows


async def rate_of(work: Work, seconds: float) -> float:
    """Return how often a piece is done a second."""
    started, count = time.perf_counter(), 0
    while not count or time.perf_counter() < started + seconds:
        await work()
        count += 1
    return count / (time.perf_counter() - started)


async def together(one: Path, other: Path, seconds: float) -> Pair:
    """Return how long two packages take at once for the time that they take in turn, with the threads that they choose.

    Each does what is in the middle of its list; the work of both takes as long alone.
    """
    async with AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(workloads(path, SessionOptions(CHOSEN))) for path in (one, other)]
        works = [list(each.values())[1] for each in opened]
        alone = [await rate_of(work, seconds) for work in works]
        steal = Steal()

        async def times(work: Work, count: int) -> None:
            for _ in range(count):
                await work()

        counts = [max(1, round(rate * seconds)) for rate in alone]
        ratios = []
        for _ in range(3):
            started = time.perf_counter()
            for work, count in zip(works, counts, strict=True):
                await times(work, count)
            middle = time.perf_counter()
            await asyncio.gather(*map(times, works, counts))
            ratios.append((time.perf_counter() - middle) / (middle - started))
    return Pair((Manifest.read(one).name, Manifest.read(other).name), ratios, steal.share())


def table_of(rows: list[Row], fixed: list[int], title: str) -> Table:
    """Return the figures of one surrounding; the last but one is what the choice comes to beside the best number."""
    table = Table(title=title, title_justify="left")
    for column in ("package", "work", *(f"{threads} threads" for threads in fixed), "chosen", "÷ the best", "stolen"):
        table.add_column(column, justify="left" if column in ("package", "work") else "right")
    for row in rows:
        rates = [f"{row.rates[threads]:,.1f}" for threads in (*fixed, CHOSEN)]
        best = max(row.rates[threads] for threads in fixed)
        table.add_row(row.package, row.work, *rates, f"{row.rates[CHOSEN] / best:.2f}", f"{row.steal:.1%}")
    return table


def table_of_pairs(pairs: list[Pair]) -> Table:
    """Return how long two take together."""
    table = Table(title="two at once: their time for that of one after the other", title_justify="left")
    for column in ("packages", "three turns", "stolen"):
        table.add_column(column)
    for pair in pairs:
        ratios = ", ".join(f"{ratio:.2f}" for ratio in sorted(pair.ratios))
        table.add_row(" and ".join(pair.packages), ratios, f"{pair.steal:.1%}")
    return table


if __name__ == "__main__":
    main()
