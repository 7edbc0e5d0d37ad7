from __future__ import annotations

import pytest

from service.engine.admission import Admission, AdmissionLimits
from service.engine.errors import Overloaded


def make_admission(slots: int = 10, tokens: int = 100) -> Admission:
    return Admission(AdmissionLimits(slots, tokens))


def test_what_waits_is_bounded_in_slots_and_in_tokens() -> None:
    admission = make_admission()
    admission.admit("", 6, 40)
    with pytest.raises(Overloaded):
        admission.admit("", 5, 10)
    with pytest.raises(Overloaded):
        admission.admit("", 1, 61)

    admission.admit("", 4, 60)
    assert admission.is_full_for("")
    with pytest.raises(Overloaded):
        admission.admit("", 1, 0)


def test_a_refused_request_leaves_nothing_behind() -> None:
    admission = make_admission()
    admission.admit("", 6, 10)
    with pytest.raises(Overloaded):
        admission.admit("", 5, 10)

    assert (admission.waiting_slots, admission.waiting_tokens) == (6, 10)


def test_alone_even_a_request_larger_than_the_queue_is_let_in_and_leaves_room_for_another_clients() -> None:
    admission = make_admission(slots=12)
    with admission.admit("large", 500, 5000) as permit:
        permit.begin(400, 4000)  # what remains is still more than all
        assert (admission.waiting_slots, admission.waiting_tokens) == (9, 75)
        admission.admit("other", 1, 8)
    assert (admission.waiting_slots, admission.waiting_tokens) == (1, 8)


def test_nobody_is_kept_out_of_an_empty_queue_however_short_it_is() -> None:
    admission = make_admission(slots=1, tokens=1)
    with admission.admit("first", 1, 1):
        pass

    admission.admit("second", 1, 1)


def test_what_runs_makes_room_for_others() -> None:
    admission = make_admission()
    permit = admission.admit("", 7, 50)
    permit.begin(5, 40)

    other = admission.admit("", 7, 70)
    admission.check_integrity({permit, other})
    assert (admission.waiting_slots, admission.waiting_tokens) == (9, 80)


def test_a_permit_gives_back_what_never_began_and_no_more() -> None:
    admission = make_admission()
    with admission.admit("", 5, 50) as permit:
        permit.settle(7, 20)
        permit.begin(3, 10)
        assert (admission.waiting_slots, admission.waiting_tokens) == (4, 10)
        permit.begin(100, 100)
        assert (admission.waiting_slots, admission.waiting_tokens) == (0, 0)

    admission.check_integrity(set())


def test_the_flood_of_one_client_leaves_the_others_a_quarter() -> None:
    admission = make_admission(slots=100, tokens=1000)
    admission.admit("other", 1, 1).settle(0, 0)  # there are two
    flood = 0
    while not admission.is_full_for("flood"):
        admission.admit("flood", 1, 1)
        flood += 1

    assert flood == 75
    assert not admission.is_full_for("other")
    admission.admit("other", 15, 1)


def test_the_first_request_of_another_client_leaves_something_free() -> None:
    admission = make_admission(slots=8)
    admission.admit("one", 6, 1)

    with pytest.raises(Overloaded):
        admission.admit("other", 2, 1)
    admission.admit("other", 1, 1)


def test_what_turns_out_to_be_more_than_was_let_in_leaves_another_client_a_quarter() -> None:
    admission = make_admission(slots=16)
    with admission.admit("b", 1, 1):
        pass
    permits = [admission.admit("a", 1, 1) for _ in range(4)]
    for permit in permits:
        permit.settle(12, 1)  # a text that was cut into sentences

    assert admission.is_full_for("a") and not admission.is_full_for("b")
    admission.admit("b", 3, 1)


def test_an_only_client_may_have_all_of_the_queue() -> None:
    admission = make_admission(slots=100, tokens=1000)
    for _ in range(100):
        admission.admit("only", 1, 1)

    assert admission.is_full_for("only")


def test_the_largest_request_of_one_who_has_nothing_waiting_fits_beside_a_few_of_another() -> None:
    admission = make_admission(slots=12)
    admission.admit("other", 1, 1)
    admission.admit("large", 500, 5000)
    with pytest.raises(Overloaded):
        admission.admit("large", 1, 1)

    admission.admit("other", 1, 1)  # there is room for it still
