from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from service.engine.admission import Admission, AdmissionLimits, Permit
from service.engine.waiting import WaitingQueue


@dataclass(eq=False)
class Item:
    permit: Permit
    name: str


def make_queue(*names: str) -> WaitingQueue[Item]:
    """Queue items named client, request, number: "a1x" is client a's request 1."""
    admission = Admission(AdmissionLimits())
    permits = {name[:2]: admission.admit(name[0], 1, 0) for name in names}
    queue: WaitingQueue[Item] = WaitingQueue()
    for name in names:
        queue.add(Item(permits[name[:2]], name))
    return queue


def drained(queue: WaitingQueue[Item]) -> list[str]:
    names = []
    while len(queue):
        item = next(queue.in_turn())
        queue.take(item)
        names.append(item.name)
    return names


def test_requests_of_one_client_come_in_the_order_of_arrival() -> None:
    assert drained(make_queue("a1", "a2", "a3")) == ["a1", "a2", "a3"]


def test_clients_take_turns_and_within_a_client_its_requests_do() -> None:
    queue = make_queue("a1x", "a1y", "a1z", "a2x", "a2y", "b1x", "b1y")
    assert drained(queue) == ["a1x", "b1x", "a2x", "b1y", "a1y", "a2y", "a1z"]


def test_the_order_of_turns_is_that_in_which_they_would_be_taken() -> None:
    names = ("a1x", "a1y", "a1z", "a2x", "a2y", "b1x", "b1y", "c1x")
    assert [item.name for item in make_queue(*names).in_turn()] == drained(make_queue(*names))


def test_a_flood_of_one_client_delays_another_by_one_item() -> None:
    queue = make_queue(*(f"a{number}" for number in range(9)))
    queue.add(Item(Admission(AdmissionLimits()).admit("b", 1, 0), "late"))

    assert drained(queue)[:2] == ["a0", "late"]


def test_the_first_items_of_those_who_are_last_come_behind_the_first_of_others() -> None:
    queue = make_queue("a1x", "a1y", "b1x", "b1y", "c1x")

    assert [item.name for item in queue.in_turn(last={"a"})] == ["b1x", "c1x", "a1x", "a1y", "b1y"]


def test_a_newcomer_does_not_overtake_for_ever() -> None:
    queue = make_queue("a1x", "a1y", "a1z")
    taken = []
    for number in range(6):
        queue.add(Item(Admission(AdmissionLimits()).admit("a", 1, 0), f"new{number}"))
        item = next(queue.in_turn())
        queue.take(item)
        taken.append(item.name)

    assert {"a1x", "a1y", "a1z"} <= set(taken)


def test_a_removed_item_has_no_turn() -> None:
    queue = make_queue("a1x", "a1y", "b1x")
    second = next(item for item in queue.in_turn() if item.name == "b1x")

    assert queue.remove(second) and not queue.remove(second)
    assert drained(queue) == ["a1x", "a1y"]


def test_a_client_who_was_passed_over_keeps_its_turn_though_another_of_its_requests_is_taken() -> None:
    queue = make_queue("a1x", "b1x", "b2x", "b2y", "c1x")
    first, second, third = list(queue.in_turn())[:3]
    assert (first.name, second.name, third.name) == ("a1x", "b1x", "c1x")
    queue.take(first)

    queue.take(next(item for item in queue.in_turn() if item.name == "b2x"))
    assert next(queue.in_turn()).name == "b1x"


def test_clients_whose_first_items_are_passed_over_share_what_goes_along_alike() -> None:
    clients = "abcd"
    queue = make_queue(*(f"{client}{request}" for client in clients for request in range(40)))
    stuck = {f"{client}0" for client in clients}
    taken: Counter[str] = Counter()
    for _ in range(20):
        item = next(item for item in queue.in_turn() if item.name not in stuck)
        queue.take(item)
        taken[item.name[0]] += 1

    assert taken == dict.fromkeys(clients, 5)
    assert [item.name for item in queue.in_turn()][:4] == ["a0", "b0", "c0", "d0"]


def test_a_request_whose_first_item_was_passed_over_keeps_its_turn() -> None:
    queue = make_queue("a1x", "a1y", "a1z", "a2x", "b1x")

    for name in ("a1y", "a2x"):
        queue.take(next(item for item in queue.in_turn() if item.name == name))
    assert next(queue.in_turn()).name == "a1x"
