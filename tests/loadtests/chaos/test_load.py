from __future__ import annotations

import pytest

from loadtests.chaos.load import Step, askers, windows

STEPS = [Step(1, 10), Step(3, 20), Step(2, 30), Step(3, 5)]


def test_who_is_there_stays_as_long_as_there_are_so_many() -> None:
    assert sorted(windows(STEPS)) == [(0, 0.0, 65), (1, 10.0, 65), (2, 10.0, 30), (2, 60.0, 65)]


@pytest.mark.parametrize(("seconds", "users"), [(0, 1), (9.9, 1), (10, 3), (30, 2), (64, 3), (65, 0)])
def test_users_come_and_go_with_the_steps(seconds: float, users: int) -> None:
    assert sum(begin <= seconds < end for _, begin, end in windows(STEPS)) == users


def test_users_ask_only_the_models_that_there_are() -> None:
    asked = askers(["stories", "sentiment"])

    assert {question.model for user in asked for question in user.questions} == {"stories", "sentiment"}
    assert any("streamed" in user.name for user in asked) and all(user.questions for user in asked)
