from __future__ import annotations

import random

import pytest

from loadtests.hostile.attacks import UNDERWAY, Kind, Outcome, Target, make_tally
from loadtests.hostile.polite import Sample
from loadtests.hostile.processes import Kill, Usage
from loadtests.hostile.verdicts import (
    descriptors_as_before,
    errors_only_near_kills,
    fair_percentile,
    hostile_answered,
    memory_as_before,
    nothing_held,
    nothing_wrong,
    p99_ratio,
    p99_ratio_by_user,
    rays_own,
    replicas_killed,
    still_right,
)

MIB = 2**20


def answers(*seconds: float) -> list[Sample]:
    return [Sample("classify", 0.0, each) for each in seconds]


def error(at: float, name: str = "500") -> Sample:
    return Sample("translate", at, 1.0, name)


def test_one_wrong_answer_is_too_many() -> None:
    wrong = Sample("embed", 0.0, 0.1, is_wrong=True)

    assert nothing_wrong(answers(0.1)).holds
    assert nothing_wrong([*answers(0.1), wrong]).found == "1 of 2 (embed)" and not nothing_wrong([wrong]).holds


@pytest.mark.parametrize(("at", "holds"), [(9.9, False), (10.0, True), (11.9, True), (12.1, False)])
def test_an_error_is_allowed_within_two_seconds_of_a_kill(at: float, holds: bool) -> None:
    assert errors_only_near_kills([error(at)], [Kill(10.0, "stories", 1)]).holds is holds


def test_errors_are_told_by_user_and_with_what_asking_again_would_have_mended() -> None:
    again = [
        Sample("translate", 3.0, 0.1, follows_error=True),
        Sample("translate", 4.0, 0.1, "500", follows_error=True),
    ]
    verdict = errors_only_near_kills([error(2.0), *again], [])

    assert verdict.found == (
        "2, 2 of them not within 2 s of a kill (translate: 500); asked again 2 times, answered 1 times"
    )


@pytest.mark.parametrize(("beside", "holds"), [(0.3, True), (0.31, False)])
def test_the_p99_may_be_three_times_as_high(beside: float, holds: bool) -> None:
    assert p99_ratio(answers(*[0.05] * 50, 0.1), answers(*[0.05] * 50, beside)).holds is holds


def test_errors_are_no_latencies() -> None:
    assert p99_ratio(answers(0.1), [*answers(0.1), Sample("embed", 0.0, 60.0, "TimeoutError")]).holds


BEFORE = [Usage("replica stories", 1, 100 * MIB, 50), Usage("replica stories", 2, 120 * MIB, 52)]


@pytest.mark.parametrize(
    ("after", "holds"),
    [
        (Usage("replica stories", 1, 105 * MIB, 50), True),
        (Usage("replica stories", 1, 106 * MIB, 50), False),
        (Usage("replica stories", 3, 125 * MIB, 52), True),  # it replaces one: the largest of its role counts
        (Usage("replica stories", 3, 127 * MIB, 52), False),
        (Usage("haproxy", 9, 900 * MIB, 900), True),  # was not there before
    ],
)
def test_memory_may_grow_by_a_twentieth(after: Usage, holds: bool) -> None:
    assert memory_as_before(BEFORE, [after]).holds is holds


def test_what_has_grown_is_named() -> None:
    grown = memory_as_before(BEFORE, [Usage("replica stories", 2, 240 * MIB, 52)])

    assert grown.found == "1 of 1 processes (replica stories 120 MiB → 240 MiB); most: replica stories × 2.00"


@pytest.mark.parametrize(("pid", "count", "holds"), [(1, 50, True), (1, 51, False), (3, 52, True), (3, 53, False)])
def test_no_process_may_have_one_file_more(pid: int, count: int, holds: bool) -> None:
    assert descriptors_as_before(BEFORE, [Usage("replica stories", pid, MIB, count)]).holds is holds


def test_processes_that_are_not_known_are_not_judged() -> None:
    assert memory_as_before([], []).holds is None is descriptors_as_before([], []).holds


def test_what_is_held_afterwards_is_named() -> None:
    assert nothing_held({}).holds and not nothing_held(None).holds
    assert nothing_held({"trifold_kv_slots_used stories": 3.0}).found.endswith("(trifold_kv_slots_used stories 3)")


def test_every_question_is_to_be_answered_right_afterwards() -> None:
    assert still_right(answers(0.1)).holds
    assert still_right([error(0.0), *answers(0.1)]).found == "1 of 2 (translate: 500)"


def test_a_run_that_was_to_kill_and_did_not_has_shown_nothing() -> None:
    assert replicas_killed([Kill(0.0, "stories", 1)], [], [], is_wanted=True).holds
    assert replicas_killed([], [], [], is_wanted=True).holds is False
    assert replicas_killed([], [], [], is_wanted=False).holds is None


def test_a_replica_that_went_without_being_killed_fails_the_run() -> None:
    verdict = replicas_killed([Kill(0.0, "stories", 1)], BEFORE, [Usage("replica stories", 3, 1, 1)], is_wanted=True)

    assert (verdict.holds, verdict.found) == (False, "1 (stories); 1 ended otherwise (replica stories)")


async def nothing(_target: Target, _rng: random.Random) -> str:
    return ""


def test_hostile_requests_that_are_not_answered_as_they_should_be_are_named() -> None:
    tally, bomb = make_tally(), Kind("bomb", "413 422", nothing)
    of_kill = Outcome("500", 9.0, 11.0)
    tally["bomb"] = [*(Outcome(what, 0.0, 0.1) for what in ("422", "422", "422", "429", "429", UNDERWAY)), of_kill]
    kills = [Kill(10.0, "stories", 1)]

    verdict = hostile_answered([bomb], tally, kills)

    assert (verdict.holds, verdict.found) == (True, "1 of 7 (bomb: 1 × 500), 0 of them without a kill")
    assert hostile_answered([bomb], tally, []).holds is False
    tally["bomb"].append(Outcome("500", 12.1, 12.2))
    assert hostile_answered([bomb], tally, kills).found.endswith("(bomb: 2 × 500), 1 of them without a kill")
    assert hostile_answered([bomb], tally, kills).holds is False
    tally["bomb"].pop()
    tally["slow body"].append(Outcome("held", 9.0, 11.0))
    assert hostile_answered([bomb, Kind("slow body", "408", nothing)], tally, kills).holds is False


def test_rays_own_processes_are_told_of_and_not_judged() -> None:
    before = [*BEFORE, Usage("log_monitor", 8, MIB, 49), Usage("ray::ProxyActor", 9, 147 * MIB, 5)]
    after = [*BEFORE, Usage("log_monitor", 8, MIB, 57), Usage("ray::ProxyActor", 9, 159 * MIB, 5)]

    assert memory_as_before(before, after).holds and descriptors_as_before(before, after).holds
    verdict = rays_own(before, after)
    assert verdict.holds is None
    memory, files = "ray::ProxyActor 147 MiB → 159 MiB", "log_monitor 49 → 57"
    assert verdict.found == f"1 with more memory ({memory}), 1 with more files ({files})"


def test_a_user_who_waits_long_counts_as_much_as_one_who_is_answered_often() -> None:
    often = [Sample("classify", 0.0, 0.1)] * 1000
    alone, beside = ([*often, Sample("translate", 0.0, seconds)] for seconds in (0.2, 60.0))

    assert p99_ratio(alone, beside).holds
    assert not p99_ratio_by_user(alone, beside).holds
    assert fair_percentile(alone, 50) == 0.1 and fair_percentile(alone, 51) == 0.2 and fair_percentile([], 99) == 0
