from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loadtests.bench_engine import WORKLOADS, Result, Workload, is_reached, measure, row_of
from loadtests.bench_models import BenchModels
from loadtests.bench_workloads import Sides


async def test_sides_take_turns_and_the_first_turn_does_not_count(tmp_path: Path) -> None:
    turns: list[str] = []
    values = {"ours": iter([1.0, 30.0, 40.0, 20.0]), "peer": iter([999.0, 10.0, 15.0, 5.0])}

    def side(name: str) -> float:
        turns.append(name)
        return next(values[name])

    @asynccontextmanager
    async def sides(_models: BenchModels, _seconds: float) -> AsyncGenerator[Sides, None]:
        async def ours() -> float:
            return side("ours")

        async def peer() -> float:
            return side("peer")

        yield Sides(ours, peer)

    workload = Workload("made up", "tokens/s", 2.0, sides)
    result = await measure(workload, BenchModels(tmp_path), seconds=0, rounds=3)

    assert turns == ["ours", "peer"] * 4
    assert result == Result("made up", ours=30.0, peer=10.0, unit="tokens/s", ratio=3.0, floor=2.0)
    assert "3.00 (reached)" in row_of(result, workload)


@pytest.mark.parametrize(("ratio", "reached"), [(0.3, True), (0.4, True), (0.5, False)])
def test_a_latency_is_to_stay_below_its_aim(ratio: float, reached: bool) -> None:
    (workload,) = [workload for workload in WORKLOADS if "Poisson" in workload.name]

    assert is_reached(Result(workload.name, ratio, 1.0, "ms", ratio, workload.floor), workload) is reached


def test_each_workload_can_be_chosen_by_its_name() -> None:
    names = [workload.name for workload in WORKLOADS]

    assert len(set(names)) == len(names)
