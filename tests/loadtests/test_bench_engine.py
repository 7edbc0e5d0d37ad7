from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loadtests import bench_engine
from loadtests.bench_engine import WORKLOADS, Result, Workload, is_reached, measure, row_of
from loadtests.bench_models import BenchModels
from loadtests.bench_workloads import Sides
from loadtests.machine import Steal, about


class Neighbours:
    """Take these shares of the machine from one turn after the other, and then nothing."""

    def __init__(self, *shares: float) -> None:
        self._shares = iter(shares)

    def __call__(self) -> Neighbours:
        return self

    def share(self) -> float:
        return next(self._shares, 0.0)


def made_up(turns: list[str], ours: list[float], peer: list[float]) -> Workload:
    """Return a workload of which the figures are known."""

    @asynccontextmanager
    async def sides(_models: BenchModels, _seconds: float) -> AsyncGenerator[Sides, None]:
        async def our_turn() -> float:
            turns.append("ours")
            return ours.pop(0)

        async def peer_turn() -> float:
            turns.append("peer")
            return peer.pop(0)

        yield Sides(our_turn, peer_turn)

    return Workload("made up", "tokens/s", 2.0, sides)


async def test_sides_take_turns_and_the_first_turn_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_engine, "Steal", Neighbours())
    turns: list[str] = []
    workload = made_up(turns, [1.0, 30.0, 40.0, 20.0], [999.0, 10.0, 15.0, 5.0])
    result = await measure(workload, BenchModels(tmp_path), seconds=0, rounds=3)

    assert turns == ["ours", "peer"] * 4
    assert result == Result("made up", ours=30.0, peer=10.0, unit="tokens/s", ratio=3.0, floor=2.0)
    assert "3.00 (reached)" in row_of(result, workload)


async def test_turns_that_neighbours_disturbed_on_one_side_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_engine, "Steal", Neighbours(0.0, 0.2, 0.1, 0.105, 0.0, 0.0))
    turns: list[str] = []
    workload = made_up(turns, [1.0, 70.0, 20.0, 30.0], [1.0, 7.0, 10.0, 10.0])
    result = await measure(workload, BenchModels(tmp_path), seconds=0, rounds=2)

    assert turns == ["ours", "peer"] * 4
    assert (result.ours, result.peer, result.repeated) == (25.0, 10.0, 1)
    assert result.steal == (0.1, 0.105)


async def test_a_machine_that_is_never_quiet_is_measured_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_engine, "Steal", Neighbours(*[0.0, 0.5] * 9))
    result = await measure(made_up([], [2.0] * 9, [1.0] * 9), BenchModels(tmp_path), seconds=0, rounds=2)

    assert (result.ratio, result.repeated, result.steal) == (2.0, 2, (0.0, 0.5))


def test_the_machine_says_what_its_figures_depend_on() -> None:
    found, steal = about(), Steal()

    assert "onnxruntime" in found["libraries"] and isinstance(found["instructions"], list)
    assert 0 <= steal.share() <= 1


@pytest.mark.parametrize(("ratio", "reached"), [(0.5, True), (0.6, True), (0.7, False)])
def test_a_latency_is_to_stay_below_its_aim(ratio: float, reached: bool) -> None:
    (workload,) = [workload for workload in WORKLOADS if "Poisson" in workload.name]

    assert is_reached(Result(workload.name, ratio, 1.0, "ms", ratio, workload.floor), workload) is reached


def test_each_workload_can_be_chosen_by_its_name() -> None:
    names = [workload.name for workload in WORKLOADS]

    assert len(set(names)) == len(names)


def test_a_run_that_is_ended_early_keeps_what_it_has_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tmp_path / "found.json"
    first, second = made_up([], [4.0] * 2, [2.0] * 2), made_up([], [], [])  # the second fails at its first turn
    monkeypatch.setattr(bench_engine, "WORKLOADS", [first, second])
    arguments = ["bench_engine", "--rounds", "1", "--models", str(tmp_path), "--json", str(found)]
    monkeypatch.setattr(sys, "argv", arguments)
    with pytest.raises(IndexError):
        bench_engine.main()

    run = json.loads(found.read_text())
    assert [result["ratio"] for result in run["results"]] == [2.0]
    assert run["precision"] == "int8" and run["about"]["processor"]
