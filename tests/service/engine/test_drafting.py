"""What a sequence may go on with is looked up in what it has, as often as that has been right."""

from __future__ import annotations

import pytest

from service.engine.drafting import MAX_DRAFT_TOKENS, Costs, Lookup

ALWAYS = 0.01  # a chance that is enough


def test_what_followed_the_last_three_tokens_before_is_the_draft() -> None:
    assert Lookup([1, 2, 3, 4, 5, 6, 7, 9, 8, 1, 2], [3]).draft(4, ALWAYS) == [4, 5, 6, 7]


def test_the_last_place_counts() -> None:
    assert Lookup([1, 2, 3, 50, 1, 2, 3, 60, 61, 1, 2, 3], []).draft(2, ALWAYS) == [60, 61]


def test_two_tokens_are_enough_where_three_were_not_there() -> None:
    assert Lookup([2, 3, 4, 1, 2, 3, 50, 51, 7, 9, 2, 3], []).draft(2, ALWAYS) == [50, 51]


@pytest.mark.parametrize("ids", [[], [5], [5, 6], [1, 2, 3, 4, 5, 6]])
def test_where_nothing_was_there_before_there_is_no_draft(ids: list[int]) -> None:
    assert Lookup(ids, []).draft(4, ALWAYS) == []


def test_a_draft_that_comes_to_the_end_goes_on_with_itself() -> None:
    draft = Lookup([9, 1, 2, 3, 1, 2], []).draft(MAX_DRAFT_TOKENS, ALWAYS)

    assert draft == ([3, 1, 2] * MAX_DRAFT_TOKENS)[: len(draft)] and len(draft) > 3


def test_numbers_are_not_found_between_numbers() -> None:
    first = int.from_bytes(bytes([0, 0, 1, 0]), "little")
    second = int.from_bytes(bytes([2, 0, 0, 0]), "little")
    shifted = [int.from_bytes(bytes([0, 1, 0, 2]), "little"), int.from_bytes(bytes(4), "little")]

    assert Lookup([*shifted, 7, 8, first, second], []).draft(4, ALWAYS) == []


def test_no_draft_is_longer_than_asked() -> None:
    assert len(Lookup([1, 2, 3] * 4, []).draft(1, ALWAYS)) == 1


def test_drafts_become_longer_when_they_are_right_and_end_when_they_are_wrong() -> None:
    output: list[int] = []
    lookup = Lookup([*range(100, 140), 100, 101], output)
    first = lookup.draft(MAX_DRAFT_TOKENS, 0.2)
    for token in range(102, 112):
        output.append(token)
        later = lookup.draft(MAX_DRAFT_TOKENS, 0.2)
    assert 0 < len(first) < len(later) == MAX_DRAFT_TOKENS

    for token in (100, 101) * 20:  # where 102 came before
        output.append(token)
        output.append(5)
        output.extend((100, 101))
        last = lookup.draft(MAX_DRAFT_TOKENS, 0.5)
    assert last == [] or last[0] == 5


def test_it_is_learnt_how_often_looking_up_is_right_without_drafts_too() -> None:
    output: list[int] = []
    lookup = Lookup([*range(100, 140), 100, 101], output)
    assert lookup.draft(MAX_DRAFT_TOKENS, 0.9) == []
    for token in range(102, 120):
        output.append(token)
        found = lookup.draft(MAX_DRAFT_TOKENS, 0.9)

    assert found == [120, 121, 122, 123][: len(found)] and found


def test_the_more_rows_there_are_the_likelier_a_draft_must_be() -> None:
    chances = [Costs().least_chance(rows) for rows in (1, 2, 3, 4)]

    assert chances == sorted(chances) and 0 < chances[0] < chances[-1] < 1


@pytest.mark.parametrize(("slower", "bounds"), [(1.2, (0.03, 0.1)), (2.5, (0.4, 0.6)), (20.0, (1.0, 1.0))])
def test_the_dearer_drafts_have_been_the_likelier_they_must_be(slower: float, bounds: tuple[float, float]) -> None:
    costs = Costs()
    for _ in range(40):
        costs.took(1, 0, 0.01)
        costs.took(1, 4, 0.01 * slower)

    assert bounds[0] <= costs.least_chance(1) <= bounds[1]


def test_what_was_too_dear_is_tried_again_after_some_hundred_steps() -> None:
    costs = Costs()
    for _ in range(40):
        costs.took(2, 0, 0.01)
        costs.took(2, 2, 0.05)
    assert costs.least_chance(2) == 1
    for _ in range(1000):
        costs.took(2, 0, 0.01)

    assert costs.least_chance(2) < 0.7
    assert costs.least_chance(1) < 0.2  # of which nothing was told


def test_steps_that_are_short_or_not_known_have_no_drafts() -> None:
    costs = Costs()
    costs.took(1, 0, 0.01)
    costs.took(2, 0, 0.0005)

    assert [costs.may_pay(rows) for rows in (1, 2, 3)] == [True, False, False]


def test_one_slow_step_decides_nothing() -> None:
    costs = Costs()
    costs.took(1, 0, 0.01)
    costs.took(1, 3, 10.0)

    assert costs.least_chance(1) < 0.3
