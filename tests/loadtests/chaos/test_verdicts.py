from __future__ import annotations

import pytest

from loadtests.chaos.cluster import Status, is_up
from loadtests.chaos.verdicts import (
    lost_with_it,
    nodes_came_and_went,
    none_failed,
    recovered,
    replicas_spread,
    same_replicas,
)
from loadtests.chaos.watch import Look
from loadtests.hostile.polite import Sample

KILLED_AT = 100.0
GONE_AT = 100.2


def sample(begun: float, ended: float, error: str | None = None, user: str = "classify 0") -> Sample:
    """Return a request, by seconds from the kill."""
    return Sample(user, KILLED_AT + ended, ended - begun, error)


def looks(*nodes: int, spread: tuple[int, ...] = ()) -> list[Look]:
    return [
        Look(float(at), {"head": 1, "gpu": count} if count else {"head": 1}, {}, spread)
        for at, count in enumerate(nodes)
    ]


@pytest.mark.parametrize(
    ("error", "holds"),
    [
        (sample(-1, 0.5, "502"), True),
        (sample(-1, 2.1, "503"), True),
        (sample(0.1, 0.3, "502"), True),  # while it died
        (sample(-1, 0.1, "broken off", user="generate streamed 2"), True),
        (sample(-1, 0.1, "IncompleteReadError", user="generate streamed 2"), True),
        (sample(-1, 2.3, "503"), False),  # hung
        (sample(0.3, 0.4, "503"), False),  # sent when the node was dead already
        (sample(-3, -1, "502"), False),  # before anything had happened
        (sample(-1, 0.5, "500"), False),
        (sample(-1, 0.5, "504"), False),
        (sample(-1, 0.5, "IncompleteReadError"), False),  # half an answer that is no stream
    ],
)
def test_only_requests_underway_may_be_lost_and_are_told_at_once(error: Sample, holds: bool) -> None:
    verdict = lost_with_it([sample(-2, -1), sample(-1, 3), error], KILLED_AT, GONE_AT)

    assert verdict.holds is holds
    assert verdict.found.startswith(f"1 of 3 (1 × {error.error})")
    assert ("not excused" in verdict.found) is not holds


def test_a_slow_answer_is_no_loss() -> None:
    assert lost_with_it([sample(-1, 30)], KILLED_AT, GONE_AT).found == "0 of 1; 1 underway in its last 0.2 s"


def test_no_failure_is_allowed_where_nothing_dies() -> None:
    assert none_failed([sample(0, 1)]).holds
    assert none_failed([sample(0, 1), sample(0, 1, "503")]).found == "1 of 2 (1 × 503)"


def test_a_recovery_that_does_not_come_is_none() -> None:
    assert recovered("back", KILLED_AT, KILLED_AT + 12).found == "after 12.0 s"
    assert recovered("back", KILLED_AT, None).holds is False


@pytest.mark.parametrize(
    ("counts", "holds"),
    [((0, 0, 1, 2, 2, 1, 0), True), ((0, 1, 0), False), ((1, 2, 0), False), ((0, 2, 1), False), ((), False)],
)
def test_nodes_come_from_zero_and_go_back_to_it(counts: tuple[int, ...], holds: bool) -> None:
    assert nodes_came_and_went(looks(*counts), "gpu", at_least=2).holds is holds


def test_nodes_are_told_in_the_order_of_their_changes() -> None:
    assert nodes_came_and_went(looks(0, 0, 1, 2, 2, 1, 0), "gpu", at_least=2).found == "0 → 1 → 2 → 1 → 0"


@pytest.mark.parametrize(("spread", "holds"), [((2, 1), True), ((1, 1), True), ((2,), False), ((3, 1), False)])
def test_replicas_share_devices_and_nodes(spread: tuple[int, ...], holds: bool) -> None:
    assert replicas_spread([*looks(0), *looks(2, spread=spread)], at_most=2).holds is holds


def test_a_cluster_is_up_when_none_of_its_dead_replicas_counts() -> None:
    status = Status({"stories": "RUNNING"}, {"stories": [("a", "RUNNING", "10.0.0.1"), ("b", "STARTING", "10.0.0.2")]})

    assert is_up(status, {"stories": 1}) and not is_up(status, {"stories": 2})
    assert not is_up(status, {"stories": 1}, without={"a"})
    assert not is_up(status, {"stories": 1, "gateway": 1})
    assert same_replicas(status, status, ["stories"]).holds
    assert same_replicas(status, Status(), ["stories"]).found == "0 of 1 stayed, 0 are new"
