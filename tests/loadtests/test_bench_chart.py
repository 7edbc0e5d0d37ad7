from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from loadtests.bench_chart import draw, places_of, results, table, times_as_fast, title
from loadtests.bench_engine import WORKLOADS, Result
from loadtests.machine import about

POISSON = next(workload for workload in WORKLOADS if workload.is_latency and "Poisson" in workload.name)
DECODE = WORKLOADS[0]
FOUND = [
    Result(DECODE.name, ours=222.2, peer=74.07, unit="tokens/s", ratio=3.0, floor=2.0, steal=(0.0, 0.021)),
    Result(POISSON.name, ours=400.0, peer=800.0, unit="ms", ratio=0.5, floor=0.4),
]
RUN = {"about": about(), "precision": "int8", "results": [asdict(result) for result in FOUND]}


def test_a_table_says_what_was_aimed_at_and_what_was_missed() -> None:
    lines = table(RUN).splitlines()

    assert lines[2] == f"| {DECODE.name} | 222.2 tokens/s | 74.07 tokens/s | 3.00 | ≥ 2 | 0.0% / 2.1% |"
    assert lines[3].endswith("| 0.50 | ≤ 0.4, missed | 0.0% / 0.0% |")


def test_half_the_latency_is_twice_as_fast() -> None:
    assert [times_as_fast(result) for result in FOUND] == [3.0, 2.0]


def test_a_run_is_told_by_its_machine_and_by_what_was_taken_from_it() -> None:
    assert about()["processor"] in title(RUN) and "at most 2.1% taken by neighbours" in title(RUN)


def test_workloads_of_older_runs_are_left_out() -> None:
    old = {**RUN, "results": [{**asdict(FOUND[0]), "workload": "no such thing"}]}

    assert results(old) == []


def test_the_peers_of_one_task_stand_together_and_no_bar_hides_another() -> None:
    others = [workload for workload in WORKLOADS if workload.task == DECODE.task]
    results = [asdict(Result(workload.name, 1.0, 1.0, workload.unit, 1.0, 1.0)) for workload in others]
    places = places_of([RUN, {**RUN, "results": results}])

    assert len(others) > 3 and [places[workload.name] for workload in others] == list(range(len(others)))
    assert places[POISSON.name] > len(others)


@pytest.mark.parametrize("runs", [1, 2])
def test_the_picture_is_small(tmp_path: Path, runs: int) -> None:
    draw([RUN] * runs, tmp_path / "bench.png")

    assert 2_000 < (tmp_path / "bench.png").stat().st_size < 200_000
