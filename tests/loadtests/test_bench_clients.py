from __future__ import annotations

import asyncio

from rich.console import Console

from loadtests.bench_clients import measure, table_of
from loadtests.bench_workloads import STORIES


def test_many_streams_and_short_requests_are_measured_alone_and_beside_each_other() -> None:
    rows = asyncio.run(measure(STORIES, seconds=0.3, pauses=[0.01, 0.05], streams=4, turns=2))

    assert [row.pause for row in rows] == [0.01, 0.05]
    for row in rows:
        assert len(row.alone) == len(row.beside) == 2 and min(*row.alone, *row.beside) > 0
        assert min(*row.short_alone, *row.short_beside) > 0 and row.kept > 0
    with (console := Console(width=200)).capture() as printed:
        console.print(table_of(rows, streams=4))
    assert printed.get().count("stories") == len(rows) and "4 streams of one client" in printed.get()
