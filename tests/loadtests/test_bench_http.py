from __future__ import annotations

import threading

import pytest

from loadtests.bench_http import Measured, Target, cell, failures, percentile, wait_for
from tests.loadtests.server import serving


def test_a_ratio_is_taken_within_each_round() -> None:
    plain, ours = [Measured(100, 2, 5, 0), Measured(400, 1, 1, 0)], [Measured(90, 3, 6, 0), Measured(200, 1, 2, 3)]
    turns = list(zip(plain, ours, strict=True))

    assert cell(0, turns) == "250 (2, 3)"
    assert cell(1, turns) == "145 (2, 4; 0.70; 3 failed)"


def test_a_ratio_to_what_never_answered_is_a_dash() -> None:
    down, up = Measured(0, 0, 0, 9), Measured(100, 2, 5, 0)

    assert cell(1, [(down, up), (down, up)]) == "100 (2, 5; –)"
    assert cell(1, [(down, up), (up, up)]) == "100 (2, 5; 1.00)"


def test_a_refusal_is_told_at_once_and_a_service_that_starts_is_waited_for() -> None:
    with serving(401) as server:
        with pytest.raises(SystemExit, match=r"/classify: 401: .*usage"):
            wait_for(Target("", f"{server.address}/classify", {}))
        assert len(server.bodies) == 1

    with serving(503) as server:
        threading.Timer(0.5, lambda: setattr(server, "status", 200)).start()
        wait_for(Target("", f"{server.address}/classify", {}))
        assert len(server.bodies) > 1


def test_a_request_without_an_answer_has_failed_as_one_with_a_bad_answer_has() -> None:
    wrk = "  Socket errors: connect 0, read 3, write 0, timeout 7\n  Non-2xx or 3xx responses: 5\n"

    assert failures(wrk) == 15
    assert failures("Requests/sec: 100.0") == 0


@pytest.mark.parametrize(("said", "milliseconds"), [("812.00us", 0.812), ("3.50ms", 3.5), ("1.20s", 1200)])
def test_latencies_are_in_milliseconds_whatever_unit_wrk_prints(said: str, milliseconds: float) -> None:
    assert percentile(99, f"     50%    1.00ms\n     99%    {said}\n") == pytest.approx(milliseconds)
