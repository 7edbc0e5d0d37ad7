from __future__ import annotations

from typing import Any

import pytest

from loadtests.sweep import Point, is_borne, knee, row, sweep


def report(sent: int, good: int) -> dict[str, Any]:
    total: dict[str, Any] = {"sent": sent, "good": good, "answered_per_s": 9.5, "good_per_s": 9.0, "errors": {"503": 2}}
    total |= {"refused": 1, "unfinished": 0, "latency_s": {"p95": 0.25}, "first_token_s": None, "per_token_s": None}
    return {"total": total, "seconds": 10.0}


def rates(bears: float, **options: Any) -> list[float]:
    """Return the rates that a sweep measures on a service that bears so much, in order."""
    measured: list[float] = []

    def measure(rate: float) -> Point:
        measured.append(rate)
        return Point(rate, rate <= bears, {})

    points = sweep(measure, **{"first": 4, "factor": 2, "halvings": 2, **options})
    assert knee(points) == max((rate for rate in measured if rate <= bears), default=None)
    return measured


@pytest.mark.parametrize(
    ("bears", "measured"),
    [(3, [4]), (4, [4, 8, 6, 5]), (15, [4, 8, 16, 12, 14]), (13, [4, 8, 16, 12, 14])],
)
def test_rates_rise_to_the_knee_and_the_gap_is_halved(bears: float, measured: list[float]) -> None:
    assert rates(bears) == measured


def test_a_sweep_ends_where_it_may_go_no_further() -> None:
    assert rates(1000, most=20) == [4, 8, 16]


def test_a_rate_beyond_one_that_was_not_borne_is_no_knee() -> None:
    assert knee([Point(8, False, {}), Point(16, True, {}), Point(4, True, {})]) == 4
    assert knee([]) is None


def test_a_rate_is_borne_if_enough_of_what_was_sent_kept_the_slo() -> None:
    assert is_borne(report(100, 99), 0.99, rate=10) and not is_borne(report(100, 98), 0.99, rate=10)
    assert not is_borne(report(0, 0), 0.99, rate=0), "nothing was sent, so nothing was shown"


def test_a_rate_that_was_not_sent_is_not_borne() -> None:
    assert is_borne(report(95, 95), 0.99, rate=10) and not is_borne(report(95, 95), 0.99, rate=20)
    assert is_borne(report(32, 32), 0.99, rate=4), "of 40 that come at random 32 are as many as one may expect"


def test_a_line_tells_the_figures_of_all_tasks_together() -> None:
    assert row(Point(10, True, report(100, 98))) == "| 10 | 9.5 | 9.0 | 98.0% | 250 ms | – | – | 2/1/0 |"
