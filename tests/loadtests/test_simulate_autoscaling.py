from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from loadtests.simulate_autoscaling import POLICIES, SLO_S, Result, Trace, draw, simulate, trace, traces

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


def test_a_request_is_late_in_the_minute_in_which_it_came_and_one_that_never_begins_is_late_too() -> None:
    bounds = POLICIES["load"][1].model_copy(update={"max_replicas": 1})
    burst = Trace("burst", np.full(4000, 70.0), np.full(4000, 30), np.full(4000, 60), 240.0)
    found = simulate(burst, POLICIES["load"][0], bounds)

    assert [wait > SLO_S for wait in found.p95] == [False, True, False, False]
    assert found.p95[1] == np.inf and found.queue[-1] > 0


def test_without_traffic_one_replica_stays() -> None:
    quiet = run(trace("quiet", lambda _: 0.0, 600), "load")

    assert set(quiet.replicas) == {1} and quiet.reversals_an_hour == 0 and quiet.kept == 1


def test_the_plots_are_pictures(tmp_path: Path) -> None:
    traffic = trace("short", lambda _: 5.0, 120)
    draw(traffic, {"load": run(traffic, "load")}, tmp_path / "short.png")

    with Image.open(tmp_path / "short.png") as picture:
        assert picture.width > 500
