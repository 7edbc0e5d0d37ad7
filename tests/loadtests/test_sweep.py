from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from loadtests.sweep import LOCUSTFILE, Point, as_json, conclusion, is_borne, is_sent, knee, row, sweep
from tests.loadtests.server import serving


def report(sent: int, good: int) -> dict[str, Any]:
    total: dict[str, Any] = {"sent": sent, "good": good, "answered_per_s": 9.5, "good_per_s": 9.0, "errors": {"503": 2}}
    total |= {"refused": 1, "unfinished": 0, "latency_s": {"p95": 0.25}, "first_token_s": None, "per_token_s": None}
    return {"total": total, "seconds": 10.0, "generator_cpu": 0.42}


def rates(bears: float, sends: float = 1e9, **options: Any) -> list[float]:
    """Return the rates that a sweep measures on a service that bears so much, if so much can be sent, in order."""
    measured: list[float] = []

    def measure(rate: float) -> Point:
        measured.append(rate)
        return Point(rate, rate <= sends, rate <= bears, {})

    points = sweep(measure, **{"first": 4, "factor": 2, "halvings": 2, **options})
    assert knee(points) == max((rate for rate in measured if rate <= min(bears, sends)), default=None)
    return measured


@pytest.mark.parametrize(
    ("bears", "measured"),
    [(3, [4]), (4, [4, 8, 6, 5]), (15, [4, 8, 16, 12, 14]), (13, [4, 8, 16, 12, 14])],
)
def test_rates_rise_to_the_knee_and_the_gap_is_halved(bears: float, measured: list[float]) -> None:
    assert rates(bears) == measured


def test_rates_rise_no_further_than_the_generator_can_send() -> None:
    assert rates(1e9, sends=13) == [4, 8, 16, 12, 14]


def test_a_sweep_ends_where_it_may_go_no_further() -> None:
    assert rates(1000, most=20) == [4, 8, 16]


def test_a_rate_beyond_one_that_was_not_borne_is_no_knee() -> None:
    assert knee([Point(8, True, False, {}), Point(16, True, True, {}), Point(4, True, True, {})]) == 4
    assert knee([]) is None


def test_a_rate_is_borne_if_enough_of_what_was_sent_kept_the_slo() -> None:
    assert is_borne(report(100, 99), 0.99) and not is_borne(report(100, 98), 0.99)
    assert not is_borne(report(0, 0), 0.99), "nothing was sent, so nothing was shown"


def test_a_rate_is_sent_if_as_many_came_as_chance_allows() -> None:
    assert is_sent(report(95, 95), 10) and not is_sent(report(95, 95), 20)
    assert is_sent(report(32, 32), 4), "of 40 that come at random 32 are as many as one may expect"
    assert not is_sent(report(18_200, 18_200), 2000), "of 20,000 chance takes no 9 %"
    assert not is_sent(report(0, 0), 0)


def test_what_was_not_sent_is_no_fault_of_the_service() -> None:
    borne, failed = Point(8, True, True, report(80, 80)), Point(16, True, False, report(160, 40))
    unsent, late = Point(16, False, True, report(120, 120)), Point(16, False, False, report(110, 40))

    assert conclusion([borne, failed]) == "knee: 8 requests/s"
    assert conclusion([failed]) == "knee: below 16 requests/s"
    for beyond, most in ((unsent, 12), (late, 11)):
        least = "the knee is at least 8 requests/s"
        assert conclusion([borne, beyond]) == f"the generator could send no more than {most} requests/s; {least}"
    assert conclusion([unsent]) == "the generator could send no more than 12 requests/s; the knee is unknown"
    assert conclusion([borne]) == "knee: at least 8 requests/s, the highest rate that was tried"
    found = [as_json(points) for points in ([borne, failed], [unsent, borne], [borne])]
    assert [each["knee"] for each in found] == [8, 8, 8]
    assert [each["is_at_least"] for each in found] == [False, True, True]
    assert [each["below"] for each in found] == [16, None, None]


def test_a_rate_that_was_not_sent_hides_none_that_was_sent_and_not_borne() -> None:
    unsent, failed = Point(16, False, False, report(110, 40)), Point(32, True, False, report(320, 40))
    points = [Point(8, True, True, report(80, 80)), unsent, failed]

    assert conclusion(points) == "knee: between 8 and 32 requests/s; the generator did not send 16"
    assert conclusion(points[1:]) == "knee: below 32 requests/s; the generator did not send 16"
    found = as_json(points)
    assert (found["knee"], found["is_at_least"], found["below"]) == (8, False, 32)


def test_a_line_tells_the_figures_of_all_tasks_together() -> None:
    told = "| 10 | 98/100 | 42% | 9.5 | 9.0 | 98.0% | 250 ms | – | – | 2/1/0 |"
    assert row(Point(10, True, True, report(98, 96))) == told


SWEEP = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from loadtests import sweep
sweep.main()
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 128 + signal.SIGTERM)])
def test_a_sweep_that_is_ended_ends_its_load_and_keeps_what_it_found(number: int, status: int, tmp_path: Path) -> None:
    found = tmp_path / "sweep.json"
    with serving(200) as server:
        options = ["--first", "20", "--seconds", "3", "--warm-up", "0.5", "--json", str(found)]
        command = [sys.executable, "-c", SWEEP, "--host", server.address, "--api-key", server.key, *options]
        with subprocess.Popen(command, cwd=LOCUSTFILE.parent.parent, stdout=-1, stderr=-1, text=True) as sweeping:
            assert sweeping.stdout is not None
            *_, first = [sweeping.stdout.readline() for _ in range(3)]  # behind two lines of the table's head
            asked = len(server.bodies)
            while len(server.bodies) == asked and sweeping.poll() is None:
                time.sleep(0.05)
            load = psutil.Process(sweeping.pid).children(recursive=True)
            sweeping.send_signal(number)
            _, errors = sweeping.communicate(timeout=30)
        _, alive = psutil.wait_procs(load, timeout=10)

    assert first.startswith("| 20 |")
    assert (sweeping.returncode, errors) == (status, "")
    assert load and not alive
    assert [each["rate"] for each in json.loads(found.read_text())["runs"]] == [20]


def test_a_sweep_that_is_not_possible_says_so_in_a_line() -> None:
    with serving(200) as server:
        command = [sys.executable, "-m", "loadtests.sweep", "--host", server.address, "--classes", "Generate"]
        ended = subprocess.run(
            command, cwd=LOCUSTFILE.parent.parent, capture_output=True, text=True, timeout=60, check=False
        )

    assert ended.returncode == 2
    assert ended.stderr.startswith("sweep: ") and ended.stderr.endswith("Unknown User(s): Generate\n")
    assert ended.stderr.count("\n") == 1
