from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from service.engine.arrays import Floats
from service.engine.drawing import draw, kept_by_filters
from service.engine.logprobs import scored
from service.engine.sampling_params import Row, SamplingParams
from service.engine.shortlist import FEW, SHORTLIST, Shortlist, draw_from, length_for, temperature_of

VOCABULARY, DRAWS = 40, 8_000


def logits_of(seed: int = 0) -> Floats:
    """Return logits that differ enough for a few tokens to hold most of the weight."""
    return np.random.default_rng(seed).normal(0, 2, (1, VOCABULARY)).astype(np.float32)


def shortlist_of(logits: Floats, params: SamplingParams, count: int) -> Shortlist:
    ids = np.argsort(-logits, axis=-1, kind="stable")[:, :count]
    below = logits - logits.max(axis=-1, keepdims=True)
    with np.errstate(over="ignore"):  # of the smallest temperatures
        masses, plain_masses = (np.exp(below / scale).sum(axis=-1) for scale in (temperature_of(params), 1))
    return Shortlist(np.take_along_axis(logits, ids, -1), ids, masses, plain_masses, count == VOCABULARY)


def row_of(**params: Any) -> Row:
    return Row(SamplingParams(1, **params), [], [], np.random.default_rng(1))


def probabilities(logits: Floats, row: Row) -> np.ndarray[Any, Any]:
    """Return what each token's probability must be by the filters' definition."""
    order = np.argsort(-logits[0], kind="stable")
    weights = np.exp((logits[0, order].astype(np.float64) - logits.max()) / row.params.temperature)
    kept = weights * kept_by_filters(weights[None], [row])[0]
    expected = np.zeros(VOCABULARY)
    expected[order] = kept / kept.sum()
    return expected


@pytest.mark.parametrize("count", [3, 12, VOCABULARY])
@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 1.0},
        {"temperature": 2.5},
        {"temperature": 0.7, "top_p": 0.9},
        {"temperature": 1.0, "top_p": 0.5},
        {"temperature": 1.5, "min_p": 0.1},
        {"temperature": 1.5, "min_p": 0.05, "top_p": 0.8},
        {"temperature": 1.0, "top_k": 3},
        {"temperature": 1.0, "top_k": 3, "top_p": 0.7},
    ],
    ids=str,
)
def test_every_token_comes_as_often_as_its_probability(params: dict[str, Any], count: int) -> None:
    logits, row = logits_of(), row_of(**params)
    shortlist, seen = shortlist_of(logits, row.params, count), Counter[int]()
    for _ in range(DRAWS):
        drawn = draw_from(shortlist, [row])
        if drawn.undecided:
            break
        if drawn.behind:  # as the engine goes on: among the others alone
            others = logits.copy()
            others[0, shortlist.ids[0]] = -np.inf
            seen[int(draw(others, [row])[0])] += 1
        else:
            seen[drawn.tokens[0].id] += 1
    if not seen:  # the filters ask for more than it has, whatever is drawn
        assert probabilities(logits, row)[shortlist.ids[0]].all()
        return
    shares = np.array([seen[token] for token in range(VOCABULARY)]) / DRAWS

    np.testing.assert_allclose(shares, probabilities(logits, row), atol=0.02)


def test_a_filter_that_the_shortlist_holds_is_decided_by_it() -> None:
    logits = logits_of()
    for params in ({"top_k": 12}, {"top_p": 0.5}, {"min_p": 0.3}, {}):
        row = row_of(temperature=1.0, **params)

        assert not draw_from(shortlist_of(logits, row.params, 12), [row]).undecided


def test_the_same_row_draws_the_same_in_any_company() -> None:
    logits = np.concatenate([logits_of(seed) for seed in range(5)])
    params = SamplingParams(1, temperature=1.0, top_k=5)
    alone = draw_from(shortlist_of(logits[2:3], params, 12), [row_of(temperature=1.0, top_k=5)])
    together = draw_from(shortlist_of(logits, params, 12), [row_of(temperature=1.0, top_k=5) for _ in range(5)])

    assert together.tokens[2] == alone.tokens[0]


def test_how_long_a_shortlist_is_depends_on_the_row_alone() -> None:
    lengths: dict[int | None, list[dict[str, Any]]] = {
        FEW: [{"top_k": 50}, {"top_k": 64, "top_p": 0.9}, {"temperature": 0, "logprobs": 5}],
        SHORTLIST: [{}, {"top_p": 0.9}, {"top_k": 100}, {"top_k": 50, "logprobs": 100}, {"logprobs": 5}],
        None: [{"top_k": 257}],
    }
    for length, asked in lengths.items():
        assert [length_for(SamplingParams(1, **params)) for params in asked] == [length] * len(asked)


def test_log_probabilities_are_those_of_all_logits() -> None:
    logits, row = logits_of(), row_of(temperature=0, logprobs=4)
    token = draw_from(shortlist_of(logits, row.params, 12), [row]).tokens[0]
    (expected,) = scored(logits, np.array([token.id]), [4])

    assert token.id == int(logits.argmax()) == expected.id
    assert token.logprob == pytest.approx(expected.logprob, abs=1e-5)
    assert [each[0] for each in token.top] == [each[0] for each in expected.top]
    np.testing.assert_allclose([e[1] for e in token.top], [e[1] for e in expected.top], atol=1e-5)


def test_the_smallest_temperatures_draw_the_likeliest_token() -> None:
    logits = logits_of()
    for asked in ({}, {"top_p": 0.9}, {"min_p": 0.1}):
        row = row_of(temperature=1e-46, **asked)

        assert draw_from(shortlist_of(logits, row.params, 12), [row]).tokens[0].id == int(logits.argmax())


def test_numbers_that_are_none_are_left_to_all_logits() -> None:
    row, shortlist = row_of(temperature=1.0), shortlist_of(logits_of(), SamplingParams(1), 12)
    broken = replace(shortlist, best=np.full_like(shortlist.best, np.nan))

    assert draw_from(broken, [row]).undecided == [0]


def test_masses_that_differ_by_rounding_draw_nothing_that_is_impossible() -> None:
    logits = np.full((1, VOCABULARY), -np.inf, np.float32)
    logits[0, :3] = 0
    row = row_of(temperature=1.0)
    shortlist = shortlist_of(logits, row.params, 12)
    shortlist = replace(shortlist, masses=shortlist.masses * np.float32(1 + 1e-7))

    assert {draw_from(shortlist, [row]).tokens[0].id for _ in range(2000)} == {0, 1, 2}
