from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from loadtests.autoscaling import POLICIES, Result, Trace, draw, simulate, trace, traces
from service.autoscaling import LoadPolicy

HOURS = 0.5
TRACES = {traffic.name: traffic for traffic in traces(HOURS)}


def run(traffic: Trace, policy: str) -> Result:
    return simulate(traffic, *POLICIES[policy])


@pytest.mark.parametrize("name", list(TRACES))
def test_minutes_keep_their_promise_and_replicas_do_not_swing(name: str) -> None:
    ours, rays = run(TRACES[name], "load"), run(TRACES[name], "Ray's, its delays")

    assert ours.kept >= 0.9 and ours.kept >= rays.kept
    assert ours.reversals_an_hour <= 15


def test_no_decision_more_than_doubles_or_takes_more_than_one() -> None:
    for traffic in TRACES.values():
        replicas = run(traffic, "load").replicas
        for before, after in pairwise(replicas):
            assert before - 1 <= after <= 2 * before


def test_without_traffic_one_replica_stays() -> None:
    quiet = run(trace("quiet", lambda _: 0.0, 600), "load")

    assert set(quiet.replicas) == {1} and quiet.reversals_an_hour == 0 and quiet.kept == 1


def context(**values: Any) -> Any:
    defaults: dict[str, Any] = {
        "total_num_requests": 0.0,
        "aggregated_metrics": {},
        "policy_state": {},
        "current_time": 0.0,
        "target_num_replicas": 2,
    }
    return SimpleNamespace(**{**defaults, **values})


POLICY = LoadPolicy(ongoing_requests=10, queued_tokens=1000, slots_used=40, hold_s=100)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({"total_num_requests": 25.0}, 3),
        ({"aggregated_metrics": {"queued_tokens": {"a": 2500.0, "b": 1.0}}}, 3),
        ({"aggregated_metrics": {"slots_used": {"a": 39.0, "b": 60.0}}}, 3),
        ({"total_num_requests": 900.0}, 4),  # no more than double
        ({"total_num_requests": 15.0}, 2),
        ({"total_num_requests": 9.0}, 2),  # one replica would be loaded to nine tenths
        ({"total_num_requests": 6.0}, 1),
        ({"total_num_requests": 0.0, "target_num_replicas": 5}, 4),  # one at a time
    ],
)
def test_the_heaviest_signal_decides(values: dict[str, Any], wanted: int) -> None:
    assert POLICY(context(**values))[0] == wanted


def test_a_peak_is_remembered_and_fades() -> None:
    _, state = POLICY(context(total_num_requests=20.0))
    soon, later = (POLICY(context(policy_state=state, current_time=time))[0] for time in (50.0, 300.0))

    assert (soon, later) == (2, 1)


def test_the_plots_are_pictures(tmp_path: Path) -> None:
    traffic = trace("short", lambda _: 5.0, 120)
    draw(traffic, {"load": run(traffic, "load")}, tmp_path / "short.png")

    with Image.open(tmp_path / "short.png") as picture:
        assert picture.width > 500
