"""`python -m loadtests.bench_drafts PACKAGE ...`: generation with drafts beside the same without, in turns.

What a model says decides how much there is to find. So there are, for each package: what it continues freely, drawn and
greedily; of a generator a passage of its own that its prompt has twice and begins again; and drafts that a seer makes,
each token of which is right with a given probability, as where a text is copied (0.95) or summarised (0.7), or where
what is found is mostly wrong (0.2).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import abc
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
from rich.console import Console
from rich.table import Table

from loadtests.bench_workloads import LIMITS, THREADS, engine_of
from loadtests.machine import Steal, about
from model.package import Manifest
from service.engine.drafting import MAX_DRAFT_TOKENS, worthwhile
from service.engine.engine import Engine
from service.engine.observer import Step
from service.engine.sampling_params import SamplingParams
from service.engine.sequence import Sampling, Sequence
from service.engine.session import SessionOptions

STREAMS = (1, 2, 4)
NEW_TOKENS = 96
PASSAGE = 64  # tokens
RIGHT = (0.95, 0.7, 0.2)  # of a seer's tokens
DRAWN = SamplingParams(NEW_TOKENS, temperature=0.8, seed=5)
GREEDY = SamplingParams(NEW_TOKENS, temperature=0)
Ids = list[int]


@dataclass(frozen=True)
class Row:
    """Tokens a second with drafts and without, turn by turn; tokens of drafts, and those of them that came."""

    package: str
    work: str
    streams: int
    rates: list[float]
    plain_rates: list[float]
    drafted: int
    accepted: int
    tokens: int
    steal: float

    @property
    def ratio(self) -> float:
        """The median of the turns' ratios."""
        return median(ours / plain for ours, plain in zip(self.rates, self.plain_rates, strict=True))


class Seer:
    """Knows what will come, and says so with a probability."""

    def __init__(self, coming: abc.Sequence[int], right: float) -> None:
        self._coming, self._right = coming, right
        self._rng = np.random.default_rng(len(coming))
        self.output_ids: abc.Sequence[int] = ()  # of who asks

    def draft(self, most: int, least: float) -> Ids:
        """Return the next tokens, as `Lookup.draft` does of one that has learnt how often it is right."""
        start, count = len(self.output_ids), min(most, MAX_DRAFT_TOKENS, worthwhile(self._right, least))
        coming = self._coming[start : start + count]
        return [token if self._rng.random() < self._right else token + 1 for token in coming]


async def generate(engine: Engine, prompts: list[Ids], params: SamplingParams, seers: list[Seer | None]) -> list[Ids]:
    """Generate from several prompts at once; return what came."""

    async def one(sequence: Sequence) -> Ids:
        with engine.admission.admit("", sequence.width, sequence.waiting_tokens) as permit:
            return [token.id async for _, output in engine.run(permit, [sequence]) for token in output.tokens]

    has_source = engine._runner.cache.has_cross
    sequences = [
        engine.sequence(params, source_ids=prompt) if has_source else engine.sequence(params, prompt)
        for prompt in prompts
    ]
    for sequence, seer in zip(sequences, seers, strict=True):
        if seer is not None:
            assert isinstance(sequence.decoding, Sampling)
            seer.output_ids = sequence.decoding.output_ids
            sequence.decoding._lookup = seer  # type: ignore[assignment]  # it stands for one
    return await asyncio.gather(*map(one, sequences))


async def measure(package: Path, seconds: float, streams_of: abc.Sequence[int] = STREAMS) -> list[Row]:
    """Return the rows of a package."""
    manifest, rng, rows = Manifest.load(package), np.random.default_rng(0), list[Row]()
    limits = replace(LIMITS, has_drafts=True)
    async with engine_of(package) as plain, engine_of(package, SessionOptions(THREADS), limits) as engine:
        if not engine._runner.takes_drafts:
            raise SystemExit(f"{package}: it has no drafts here: see Drafts in service/engine/README.md")

        async def row(work: str, prompts: list[Ids], params: SamplingParams, right: float | None = None) -> Row:
            no_seers: list[Seer | None] = [None] * len(prompts)
            expected = await generate(plain, prompts, params, no_seers)

            def seers() -> list[Seer | None]:
                return no_seers if right is None else [Seer(ids, right) for ids in expected]

            assert await generate(engine, prompts, params, seers()) == expected, "bug: drafts have changed an answer"
            rates: tuple[list[float], list[float]] = [], []
            counted, steal, end = _count(engine), Steal(), time.perf_counter() + 2 * seconds
            while time.perf_counter() < end:
                for side, use, chosen in ((0, engine, seers), (1, plain, lambda: no_seers)):
                    started = time.perf_counter()
                    found = await generate(use, prompts, params, chosen())
                    rates[side].append(sum(map(len, found)) / (time.perf_counter() - started))
            tokens = len(rates[0]) * sum(map(len, expected))
            return Row(manifest.name, work, len(prompts), *rates, *counted(), tokens, steal.share())

        for streams in streams_of:
            shorts = [rng.integers(5, manifest.vocab_size, 16).tolist() for _ in range(streams)]
            rows.append(await row("drawn", shorts, DRAWN))
            rows.append(await row("greedy", shorts, GREEDY))
            if "encoder" not in manifest.graphs:
                passages = await generate(plain, shorts, replace(DRAWN, max_tokens=PASSAGE), [None] * streams)
                twice = [[*passage, *passage, *passage[:8]] for passage in passages]
                rows.append(await row("a passage for the third time", twice, GREEDY))
            for right in RIGHT:
                rows.append(await row(f"a seer, {right} right", shorts, DRAWN, right))
    return rows


def _count(engine: Engine) -> Callable[[], tuple[int, int]]:
    """Begin to count tokens of drafts, and those of them that came."""
    observer, counts = engine._reporter._observer, [0, 0]
    stepped = type(observer).stepped

    def count(step: Step) -> None:
        counts[0] += step.drafted
        counts[1] += step.accepted
        stepped(observer, step)

    observer.stepped = count  # type: ignore[method-assign]  # a counter for this measurement
    return lambda: (counts[0], counts[1])


def table_of(rows: list[Row]) -> Table:
    """Return the figures."""
    table = Table(title="with drafts ÷ without", title_justify="left")
    for column in ("package", "work", "streams", "ratio", "least", "most", "of drafts came", "of tokens", "stolen"):
        table.add_column(column, justify="left" if column in ("package", "work") else "right")
    for row in rows:
        ratios = sorted(ours / plain for ours, plain in zip(row.rates, row.plain_rates, strict=True))
        came = f"{row.accepted / row.drafted:.0%}" if row.drafted else "–"
        figures = [f"{row.ratio:.2f}", f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}"]
        share = f"{row.accepted / row.tokens:.0%}"
        table.add_row(row.package, row.work, str(row.streams), *figures, came, share, f"{row.steal:.1%}")
    return table


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m loadtests.bench_drafts", description=__doc__)
    parser.add_argument("packages", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each side of a row")
    parser.add_argument("--json", type=Path, help="file for what was measured")
    options = parser.parse_args()
    rows = [row for path in options.packages for row in asyncio.run(measure(path, options.seconds))]
    Console(width=None if sys.stdout.isatty() else 120).print(table_of(rows))
    if options.json is not None:
        report = {"about": about(), "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
