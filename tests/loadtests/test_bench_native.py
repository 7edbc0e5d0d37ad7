from __future__ import annotations

import asyncio

from rich.console import Console

from loadtests.bench_native import Row, measure, table_of
from loadtests.bench_workloads import PACKAGES


def test_every_workload_is_measured_on_both_sides() -> None:
    rows = asyncio.run(measure(PACKAGES / "sentiment", seconds=0.01))

    assert [row.work for row in rows] == ["1 × 16 tokens", "1 × 128 tokens", "8 × 64 tokens"]
    assert all(len(row.own) == len(row.plain) and min(row.own + row.plain) > 0 for row in rows)


def test_a_ratio_is_the_median_of_the_turns() -> None:
    row = Row("stories", "int8", "8 streams", [20, 30, 24], [10, 10, 20], 0.0)
    with (console := Console(width=200)).capture() as printed:
        console.print(table_of([row]))

    assert row.ratios == [1.2, 2.0, 3.0]
    assert "2.00 (1.20–3.00)" in printed.get()
