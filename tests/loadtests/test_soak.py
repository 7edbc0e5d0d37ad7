from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadtests import sweep
from loadtests.hostile.processes import Usage
from loadtests.soak import Look, folders, judge, knee_of, parse, size

REPLICAS = 7, 8
RAYS = {"memory": 500, "descriptors": 50, "threads": 20}


def report(**total: Any) -> dict[str, Any]:
    return {"total": {"sent": 900, "answered": 900, "errors": {}, "refused": 0, "unfinished": 0, **total}}


def looks(*memory: int, disk: int = 1000) -> list[Look]:
    """Return a look a minute; a replica's memory is as given, and all else stays."""
    held = {"descriptors": 30, "threads": 8}
    return [
        Look(60.0 * minute, {"replica stories": {"memory": each, **held}}, RAYS, REPLICAS, disk)
        for minute, each in enumerate(memory)
    ]


def broken(seen: list[Look], loaded: dict[str, Any] | None = None) -> list[str]:
    return [each.name for each in judge(seen, 120, loaded or report()) if each.holds is False]


@pytest.mark.parametrize(
    ("memory", "holds"),
    [
        ((10, 90, 100, 104, 104), True),
        ((10, 90, 100, 115, 110), False),
        ((10, 90, 100, 104, 300), True),  # others' work made it hold more for a minute
        (
            (10, 300, 100, 100, 100),
            True,
        ),  # what it took before minute ten does not count, and what it gave back is fine
    ],
)
def test_memory_may_grow_by_a_twentieth_after_it_has_settled(memory: tuple[int, ...], holds: bool) -> None:
    assert broken(looks(*memory)) == ([] if holds else ["memory, replica stories"])


def test_a_failed_request_breaks_a_soak_and_so_does_a_load_that_asks_nothing() -> None:
    seen = looks(100, 100, 100, 100)

    assert broken(seen, report(errors={"503": 1})) == ["no request fails"]
    assert broken(seen, report(refused=1)) == ["no request fails"]
    assert broken(seen, report(unfinished=1)) == ["no request fails"]
    assert broken(seen, report(answered=0)) == ["no request fails"]


def test_files_that_grow_break_it_and_rays_own_processes_do_not() -> None:
    rays = [{**RAYS, "memory": 10**minute} for minute in range(5)]
    seen = [Look(60.0 * minute, {}, each, REPLICAS, 1000 * (minute + 1)) for minute, each in enumerate(rays)]

    assert broken(seen) == ["files"]
    assert "memory × 10.000" in next(each.found for each in judge(seen, 120, report()) if "Ray" in each.name)


def test_a_replica_that_died_breaks_it_whatever_its_successor_holds() -> None:
    seen = looks(100, 100, 100, 100)

    assert broken([*seen[:2], *(replace(each, replicas=(REPLICAS[0], 99)) for each in seen[2:])]) == [
        "no replica began anew"
    ]


def test_a_knee_that_is_but_the_generators_limit_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = {"seconds": 10.0, "total": {"sent": 90}}
    points = [sweep.Point(8, True, True, sent), sweep.Point(16, False, True, sent)]
    monkeypatch.setattr(sweep, "measure", lambda _: points)

    assert knee_of(sweep.parse([])) == 8
    assert "could send no more than 9 requests/s; the knee is at least 8 requests/s" in capsys.readouterr().err
    points.pop(0)
    with pytest.raises(RuntimeError, match="not even 4 requests/s"):
        knee_of(sweep.parse([]))


def test_it_lasts_longer_than_until_it_has_settled() -> None:
    assert parse(["--seconds", "720", "--settle", "600"]).seconds == 720
    with pytest.raises(SystemExit):
        parse(["--seconds", "700"])


def test_files_are_those_that_the_processes_write(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "log").write_bytes(b"x" * 100_000)

    assert size(tmp_path) >= 100_000
    assert folders([Usage("gone", 2**22, 0, 0)]) == set()


def test_connections_that_are_open_for_a_moment_are_no_descriptors_that_stay() -> None:
    seen = [
        Look(
            60.0 * minute - second, {"gateway": {"memory": 100, "descriptors": count, "threads": 8}}, RAYS, REPLICAS, 1
        )
        for minute in range(1, 5)
        for second, count in ((40, 30), (20, 30 + 20 * (minute > 2)), (0, 30 + 20 * (minute > 2)))
    ]

    assert broken(seen) == []
