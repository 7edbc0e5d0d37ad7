from __future__ import annotations

import numpy as np
import pytest

from service.engine.arrays import Array
from service.engine.inputs import TextInput
from service.tasks.explaining.contributions import Trial, contributions, leaving_one_out, orders_of

TEXT = TextInput([1, 10, 20, 30, 2], [0] * 5)
PLACES = [1, 2, 3]


def answered(trial: Trial, interaction: float) -> Array:
    """Ask a model that adds a tenth of each id, and more where 10 and 20 stand together."""
    return np.array([sum(row.ids) / 10 + interaction * ({10, 20} <= set(row.ids)) for row in trial.rows])


@pytest.mark.parametrize("trial", [leaving_one_out(TEXT, PLACES), orders_of(TEXT, PLACES, 1000)])
def test_what_adds_up_is_told_exactly(trial: Trial) -> None:
    np.testing.assert_allclose(contributions(trial, answered(trial, 0)), [1, 2, 3])


def test_what_two_do_together_is_shared_in_orders_and_counted_twice_one_by_one() -> None:
    orders, single = orders_of(TEXT, PLACES, 1000), leaving_one_out(TEXT, PLACES)

    np.testing.assert_allclose(contributions(orders, answered(orders, 4)), [3, 4, 3])  # backwards each has its half
    np.testing.assert_allclose(contributions(single, answered(single, 4)), [5, 6, 3])


def test_contributions_add_up_whatever_the_model_says() -> None:
    trial = orders_of(TextInput(list(range(20)), [0] * 20), list(range(1, 19)), 1000)
    answers = np.random.default_rng(0).random(len(trial.rows))

    assert contributions(trial, answers).sum() == pytest.approx(answers[0] - answers[1])


@pytest.mark.parametrize(("most", "rows"), [(1000, 2 + 10 * 2), (12, 2 + 4 * 2), (1, 2 + 2 * 2)])
def test_rows_are_bounded_but_an_order_goes_both_ways(most: int, rows: int) -> None:
    trial = orders_of(TEXT, PLACES, most)

    assert len(trial.rows) == rows
    assert all(row.ids[0] == 1 and row.ids[-1] == 2 for row in trial.rows)


def test_a_text_of_one_token_has_what_it_says_as_that_tokens() -> None:
    trial = orders_of(TextInput([1, 10, 2], [0] * 3), [1], 1000)

    np.testing.assert_allclose(contributions(trial, np.array([5.0, 2.0])), [3])


def test_a_text_without_tokens_has_no_contributions() -> None:
    for trial in (orders_of(TextInput([1, 2], [0, 0]), [], 1000), leaving_one_out(TextInput([1, 2], [0, 0]), [])):
        assert contributions(trial, np.zeros(len(trial.rows))).tolist() == []
