from __future__ import annotations

from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from service.autoscaling import LoadPolicy


def context(**values: Any) -> Any:
    defaults: dict[str, Any] = {
        "total_num_requests": 0.0,
        "aggregated_metrics": {},
        "policy_state": {},
        "current_time": 0.0,
        "target_num_replicas": 2,
        "current_num_replicas": 2,
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


SOMETIME_AGO = {"needed": (0.0, -60.0)}  # the first of the starting replicas began then, and nothing was there


def test_what_starting_replicas_will_take_does_not_ask_for_more() -> None:
    waiting = {"total_num_requests": 80.0, "target_num_replicas": 4, "policy_state": SOMETIME_AGO}

    assert POLICY(context(**waiting, current_num_replicas=4))[0] == 8
    assert POLICY(context(**waiting, current_num_replicas=2))[0] == 5  # 2, and half of the six that exceed them
    fewer = {**waiting, "total_num_requests": 19.0}
    assert POLICY(context(**fewer, current_num_replicas=2))[0] == 3


def decided(*requests: float) -> list[int]:
    """Return what is wanted at each second, beginning with one replica, while none of the others is ready."""
    state: dict[str, Any] = {}
    target, wanted = 1, []
    for now, ongoing in enumerate(requests):
        asked = context(
            total_num_requests=ongoing,
            target_num_replicas=target,
            current_num_replicas=1,
            policy_state=state,
            current_time=float(now),
        )
        target, state = POLICY(asked)
        wanted.append(target)
    return wanted


def test_a_load_that_stays_gets_all_its_replicas_before_the_first_of_them_is_ready() -> None:
    assert decided(*[40.0] * 6) == [2, 4, 4, 4, 4, 4]


def test_a_queue_that_grows_while_replicas_start_does_not_ask_for_a_replica_for_each_who_waits() -> None:
    assert decided(*[20.0] * 6, 40.0, 60.0)[-2:] == [3, 3]  # 4 and 6 by the number of requests


def test_what_has_left_again_asks_for_no_replica() -> None:
    assert decided(40.0, 20.0, 20.0) == [2, 2, 2]


MORNING = {"begin": "07:30", "end": "10:00", "days": ["mon", "tue"], "time_zone": "Europe/Berlin", "min_replicas": 5}
NIGHT = {"begin": "22:00", "end": "02:00", "days": ["fri"], "time_zone": "UTC", "min_replicas": 3}


@pytest.mark.parametrize(
    ("when", "minimum"),
    [
        ("2026-01-05T06:30+00:00", 5),  # Monday, 7:30 in Berlin
        ("2026-01-05T06:29+00:00", 0),
        ("2026-01-05T09:00+00:00", 0),
        ("2026-07-06T05:30+00:00", 5),  # in summer
        ("2026-01-07T07:00+00:00", 0),  # Wednesday
        ("2026-01-09T23:59+00:00", 3),  # Friday night
        ("2026-01-10T01:59+00:00", 3),
        ("2026-01-10T02:00+00:00", 0),
        ("2026-01-10T23:00+00:00", 0),
    ],
)
def test_a_schedule_holds_a_minimum_by_the_clock_of_its_time_zone(when: str, minimum: int) -> None:
    policy = LoadPolicy(10, 1000, 40, hold_s=100, schedule=[MORNING, NIGHT])
    now = datetime.fromisoformat(when).timestamp()

    assert policy(context(current_time=now, target_num_replicas=1, current_num_replicas=1))[0] == minimum
    assert policy(context(current_time=now, target_num_replicas=0, current_num_replicas=0))[0] == minimum


def test_a_peak_is_remembered_and_fades() -> None:
    _, state = POLICY(context(total_num_requests=20.0))
    soon, later = (POLICY(context(policy_state=state, current_time=time))[0] for time in (50.0, 300.0))

    assert (soon, later) == (2, 1)


def test_the_last_replica_goes_when_nothing_is_asked_and_stays_while_anything_is() -> None:
    remembered = {"peak": (5.0, 0.0)}

    assert POLICY(context(policy_state=remembered, target_num_replicas=1))[0] == 0
    assert POLICY(context(policy_state=remembered, target_num_replicas=1, total_num_requests=0.1))[0] == 1
    assert POLICY(context(policy_state=remembered, target_num_replicas=2))[0] == 2
    asked = {"asked": {"a": 0.2, "b": 0.0}}  # by a request that was over when the load was looked at
    assert POLICY(context(policy_state=remembered, target_num_replicas=1, aggregated_metrics=asked))[0] == 1
    assert POLICY(context(target_num_replicas=0, aggregated_metrics=asked))[0] == 1


def test_a_clock_that_is_set_back_changes_no_peak() -> None:
    state = {"peak": (3.0, 10_000.0)}
    now, back = (POLICY(context(policy_state=state, current_time=time)) for time in (10_000.0, -1e9))

    assert back[0] == now[0] and back[1]["peak"][0] == now[1]["peak"][0]
