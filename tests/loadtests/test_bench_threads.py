from __future__ import annotations

import asyncio
import math
import os

import pytest
from rich.console import Console

from loadtests.bench_threads import CHOSEN, measure, neighbour, table_of, table_of_pairs, together
from loadtests.bench_workloads import PACKAGES


@pytest.mark.parametrize(
    ("package", "works"), [("stories", "streams"), ("sentiment", "tokens"), ("translate", "streams")]
)
def test_every_workload_is_measured_with_every_number_of_threads(package: str, works: str) -> None:
    rows = asyncio.run(measure(PACKAGES / package, [1, 2], seconds=0.01))

    assert len(rows) == 3 and all(works in row.work for row in rows)
    assert all(set(row.rates) == {1, 2, CHOSEN} and min(row.rates.values()) > 0 for row in rows)
    with (console := Console(width=200)).capture() as printed:
        console.print(table_of(rows, [1, 2], "alone"))
    assert printed.get().count(package) == 3


def test_two_models_are_timed_at_once() -> None:
    pair = asyncio.run(together(PACKAGES / "sentiment", PACKAGES / "topics", seconds=0.05))

    assert len(pair.ratios) == 3 and all(0 < ratio < math.inf for ratio in pair.ratios)
    with (console := Console(width=200)).capture() as printed:
        console.print(table_of_pairs([pair]))
    assert "sentiment and topics" in printed.get()


def test_a_neighbour_works_until_it_is_sent_away() -> None:
    with neighbour() as pid:
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
