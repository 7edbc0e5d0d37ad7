from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from loadtests.chaos.report import as_json, over_time, plot, table
from loadtests.chaos.watch import Event, Found, Look
from loadtests.hostile.polite import Sample
from loadtests.hostile.verdicts import Verdict


@pytest.fixture
def found() -> Found:
    """Twelve seconds: a user from the second to the tenth, one node, an answer and an error."""
    return Found(
        "a node is killed",
        started=100.0,
        samples=[Sample("classify 0", 103.0, 0.2), Sample("classify 0", 107.0, 1.0, "503")],
        looks=[Look(101.0, {"cpu": 1}, {"RUNNING": 1}, (1,)), Look(112.0, {"cpu": 2, "gpu": 1}, {"STARTING": 1}, ())],
        events=[Event(106.0, "killed")],
        users=[(102.0, 1), (110.0, 0)],
        verdicts=[Verdict("failed requests", False, "1 of 2")],
    )


def test_what_is_drawn_is_what_was_seen_in_seconds_from_the_start(found: Found) -> None:
    panels = over_time(found)

    assert panels["users"][""] == [(0.0, 0), (2.0, 1), (10.0, 0)]
    assert panels["nodes"] == {"cpu": [(1.0, 1), (12.0, 2)], "gpu": [(1.0, 0), (12.0, 1)]}
    assert panels["replicas"]["running"] == [(1.0, 1), (12.0, 0)]
    assert panels["failed"][""] == [(0.0, 0), (5.0, 1), (10.0, 0)]
    assert panels["p95 in s"][""] == [(0.0, 0.2), (5.0, 0.0)]


def test_a_run_is_told_whole(found: Found, tmp_path: Path) -> None:
    plot(found, tmp_path / "plot.svg")
    (told,) = json.loads(json.dumps(as_json([found])))

    assert told["name"] == "a node is killed" and told["holds"] is False and len(told["samples"]) == 2
    assert table([found]).row_count == 1 and (tmp_path / "plot.svg").stat().st_size > 1000


def test_what_is_told_and_not_judged_breaks_no_scenario(found: Found) -> None:
    told = Verdict("longest request", None, "1.0 s")

    assert replace(found, verdicts=[Verdict("failed requests", True, "0 of 2"), told]).holds()
    assert not replace(found, verdicts=[*found.verdicts, told]).holds()
