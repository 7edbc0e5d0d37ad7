from __future__ import annotations

import statistics

import pytest

from loadtests.inputs import SENTENCES, Inputs
from loadtests.shapes import users_at


@pytest.mark.parametrize("kind", ["classify", "embed", "generate", "translate"])
def test_a_seed_asks_the_same_again_and_another_asks_something_else(kind: str) -> None:
    first, again, other = ([getattr(Inputs(seed), kind)() for _ in range(1)] for seed in (1, 1, 2))

    assert first == again != other


def test_lengths_are_log_normal_with_the_median_and_the_bound_that_were_asked_for() -> None:
    inputs = Inputs(1)
    lengths = [inputs.length(median=50, sigma=0.6, most=200) for _ in range(4000)]

    assert statistics.median(lengths) == pytest.approx(50, rel=0.1)
    assert statistics.mean(lengths) > 55 and max(lengths) == 200  # a tail to the right


def test_texts_are_sentences_of_the_book_in_its_order() -> None:
    text = Inputs(3).text(60)

    assert text in " ".join([*SENTENCES, *SENTENCES])
    assert 60 <= len(text.split()) <= 100


def test_pauses_are_those_of_a_poisson_process() -> None:
    inputs = Inputs(1)
    pauses = [inputs.pause(2.0) for _ in range(4000)]

    assert statistics.mean(pauses) == pytest.approx(2, rel=0.1)
    assert statistics.stdev(pauses) == pytest.approx(2, rel=0.1)


def test_requests_of_an_open_loop_come_as_often_as_they_should_from_a_user_who_is_always_late() -> None:
    inputs, now = Inputs(1), 0.0
    for _ in range(4000):
        now += inputs.until_next(0.3, now) + 0.05

    assert now / 4000 == pytest.approx(0.3, rel=0.05)


@pytest.mark.parametrize(
    ("shape", "users"),
    [
        ("constant", [100, 100, 100, 100]),
        ("ramp", [1, 25, 50, 100]),
        ("spike", [10, 10, 100, 10]),
        ("steps", [20, 40, 60, 100]),
        ("wave", [1, 100, 1, 1]),
    ],
)
def test_shapes_have_so_many_users_at_the_beginning_after_a_quarter_a_half_and_at_the_end(
    shape: str, users: list[int]
) -> None:
    assert [users_at(shape, seconds, 120, 100) for seconds in (0, 30, 60, 119.9)] == pytest.approx(users, abs=1)
