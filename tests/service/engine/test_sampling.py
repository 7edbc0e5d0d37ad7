from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from service.engine.constraints import Constraints
from service.engine.drawing import kept_by_filters
from service.engine.sampling import sample
from service.engine.sampling_params import Row, SamplingParams
from tests.service.engine.test_logits_processors import adjust


def row(
    prompt: list[int] | None = None,
    output: list[int] | None = None,
    *,
    constraints: dict[str, Any] | None = None,
    **params: Any,
) -> Row:
    """Return a row with sampling parameters, held to constraints."""
    chosen = SamplingParams(max_tokens=9, constraints=Constraints(**(constraints or {})), **params)
    return Row(chosen, prompt or [], output or [], np.random.default_rng(params.get("seed")))


def logits(*values: float) -> NDArray[np.float32]:
    return np.array([values], np.float32)


def test_temperature_0_takes_the_likeliest() -> None:
    assert sample(logits(1, 5, 3), [row(temperature=0)])[0].id == 1


def test_draws_follow_the_distribution() -> None:
    probabilities = np.array([0.5, 0.3, 0.15, 0.05])
    one = row(temperature=1.0, seed=0)
    drawn = Counter(sample(np.log(probabilities)[None].astype(np.float32), [one])[0].id for _ in range(4000))

    for token, probability in enumerate(probabilities):
        assert drawn[token] / 4000 == pytest.approx(probability, abs=0.03)


def test_a_high_temperature_flattens() -> None:
    cold, hot = (row(temperature=temperature, seed=0) for temperature in (0.5, 5.0))
    values = logits(2, 0, 0, 0)

    assert sum(sample(values, [cold])[0].id == 0 for _ in range(300)) > 270
    assert sum(sample(values, [hot])[0].id == 0 for _ in range(300)) < 150


@pytest.mark.parametrize(
    ("params", "kept"),
    [
        ({}, [True, True, True, True]),
        ({"top_k": 2}, [True, True, False, False]),
        ({"top_p": 0.5}, [True, False, False, False]),
        ({"top_p": 0.51}, [True, True, False, False]),
        ({"top_p": 1e-9}, [True, False, False, False]),
        ({"min_p": 0.4}, [True, True, False, False]),
        ({"top_k": 3, "top_p": 0.9, "min_p": 0.2}, [True, True, True, False]),
    ],
)
def test_filters_keep_the_likeliest(params: dict[str, Any], kept: list[bool]) -> None:
    weights = np.array([[0.5, 0.3, 0.15, 0.05]]) / 0.5

    assert kept_by_filters(weights, [row(**params)])[0].tolist() == kept


def test_only_what_the_filters_keep_is_drawn() -> None:
    one = row(temperature=1.0, top_k=2, seed=0)

    assert {sample(logits(1, 1.1, 1.2, 1.3), [one])[0].id for _ in range(100)} == {2, 3}


def test_rows_do_not_influence_each_other() -> None:
    values = np.random.default_rng(0).normal(size=(3, 50)).astype(np.float32)
    kinds: list[dict[str, Any]] = [
        {"temperature": 1.0, "seed": 4},
        {"temperature": 0},
        {"temperature": 0.7, "top_p": 0.5, "seed": 9, "constraints": {"logit_bias": {3: 2.0}}},
    ]

    together = sample(values, [row(**kind) for kind in kinds])
    alone = [sample(values[[index]], [row(**kind)])[0] for index, kind in enumerate(kinds)]
    assert together == alone


def test_a_repetition_penalty_counts_prompt_and_output() -> None:
    changed = adjust(logits(2, 2, -2, 2), [row(prompt=[0], output=[2], constraints={"repetition_penalty": 2.0})])

    assert changed[0].tolist() == [1, 2, -4, 2]


def test_presence_and_frequency_penalties_count_the_output_alone() -> None:
    penalties = {"presence_penalty": 1, "frequency_penalty": 0.5}
    changed = adjust(logits(5, 5, 5), [row(prompt=[0], output=[1, 1, 2], constraints=penalties)])

    assert changed[0].tolist() == [5, 3, 3.5]


def test_a_bias_adds_and_min_tokens_forbids_the_end() -> None:
    changed = adjust(logits(5, 1), [row(stop_ids=frozenset({0}), constraints={"logit_bias": {1: 3}, "min_tokens": 1})])

    assert changed[0].tolist() == [-np.inf, 4]


def test_of_a_row_without_constraints_nothing_is_kept() -> None:
    assert row(output=[1]).constraint_state() is None


def test_logprobs_are_natural_and_come_with_the_likeliest() -> None:
    token = sample(np.log([[0.7, 0.2, 0.1]]).astype(np.float32), [row(temperature=0, logprobs=2)])[0]

    assert token.logprob == pytest.approx(np.log(0.7), abs=1e-5)
    assert [alternative for alternative, _ in token.top] == [0, 1]
