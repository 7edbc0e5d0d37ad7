from __future__ import annotations

import asyncio

import pytest
from rich.console import Console

from loadtests.bench_drafts import RIGHT, measure, table_of
from loadtests.bench_workloads import STORIES
from service.engine import drafting
from tests.service.engine.native.machine import needs_instructions


@needs_instructions
def test_every_workload_is_measured_with_drafts_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafting, "LEAST_STEP_S", 0.0)
    monkeypatch.setattr(drafting, "COST_RATE", 0.0)  # however long single steps take here
    rows = asyncio.run(measure(STORIES, seconds=0.01, streams_of=[2]))

    assert len(rows) == 3 + len(RIGHT) and all(row.ratio > 0 for row in rows)
    copied = next(row for row in rows if "0.95" in row.work)
    assert 0.5 < copied.accepted / copied.drafted <= 1 and copied.accepted > 0  # 0.84 of many, and these are few
    with (console := Console(width=200)).capture() as printed:
        console.print(table_of(rows))
    assert printed.get().count("stories") == len(rows)
