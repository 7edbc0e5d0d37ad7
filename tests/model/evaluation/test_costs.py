from __future__ import annotations

import pytest

from model.evaluation.costs import costs
from model.package import Figure


def figures(metric: str, exact: float, value: float) -> list[Figure]:
    return [
        Figure(dataset="some/test", metric=metric, value=exact, precision="float32"),
        Figure(dataset="some/test", metric=metric, value=value, precision="int8-static"),
    ]


@pytest.mark.parametrize(
    ("metric", "exact", "value", "too_much"),
    [
        ("sacreBLEU en-de, multi-reference, greedy", 40.0, 39.8, False),
        ("sacreBLEU en-de, multi-reference, greedy", 40.0, 39.6, True),
        ("perplexity per word", 13.0, 13.1, False),
        ("perplexity per word", 13.0, 13.2, True),
        ("accuracy", 0.9, 0.898, False),
        ("accuracy", 0.9, 0.896, True),
        ("Spearman", 0.7, 0.75, False),
        ("Spearman", 0.7, 0.69, True),
        ("chrF en-de, multi-reference, beam 4", 60.0, 59.8, False),
        ("chrF en-de, multi-reference, beam 4", 60.0, 59.6, True),
        ("F1 of spam", 0.98, 0.97, True),
        ("entity F1", 0.6, 0.59, True),
        ("exact match", 0.3, 0.29, True),
        ("zero-shot accuracy into 4 labels", 0.48, 0.477, False),
        ("zero-shot accuracy into 4 labels", 0.48, 0.47, True),
    ],
)
def test_a_precision_may_cost_so_much(metric: str, exact: float, value: float, too_much: bool) -> None:
    (cost,) = costs(figures(metric, exact, value))

    assert cost.is_too_much is too_much and cost.precision == "int8-static"


def test_a_figure_without_one_in_float32_costs_nothing_that_is_known() -> None:
    assert costs(figures("accuracy", 0.9, 0.1)[1:]) == costs(figures("minutes", 1.0, 2.0)) == []
