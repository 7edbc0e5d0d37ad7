"""Draws against a slow reference: float64, and the whole vocabulary in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.engine import drawing
from service.engine.arrays import Doubles, Floats, Ids
from service.engine.sampling_params import Row, SamplingParams
from tests.service.engine.native.libraries import own_passes

KINDS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.8},
    {"temperature": 0.0},
    {"temperature": 1e-30},
    {"temperature": 1e-300},
    {"min_p": 0.2},
    {"top_k": 1},
    {"top_k": 7, "top_p": 0.8},
    {"top_k": 50, "temperature": 0.7},
    {"top_k": 300, "min_p": 0.1},
    {"top_p": 0.95},
    {"top_p": 0.5, "temperature": 2.0},
    {"top_p": 1e-6},
    {"top_p": 1 - 1e-7},
    {"top_p": 0.9, "min_p": 0.3},
    {"top_k": 700, "top_p": 0.6, "temperature": 1.3},
    {"top_k": 1_000_000},
]


def draw_by_own(logits: Floats, rows: Sequence[Row]) -> Ids:
    return drawing.draw(logits, rows, own_passes())


by_both = pytest.mark.parametrize("draw", [drawing.draw, draw_by_own], ids=["NumPy", "our own operator"])
Draw = Callable[[Floats, Sequence[Row]], Ids]


def row(rng: np.random.Generator | None = None, **params: Any) -> Row:
    return Row(SamplingParams(max_tokens=9, **params), [], [], rng or np.random.default_rng(params.get("seed")))


def probabilities(logits: Floats, params: SamplingParams) -> tuple[Doubles, NDArray[np.bool_]]:
    """Return what each token is drawn with, and which tokens are so near a filter's edge that rounding may decide."""
    with np.errstate(over="ignore"):
        weights = np.exp((logits.astype(np.float64) - logits.max()) / params.temperature)
    order = np.argsort(-logits, kind="stable")
    in_order = weights[order]
    in_order[params.top_k or len(order) :] = 0
    in_order /= in_order.sum()
    before = in_order.cumsum() - in_order
    kept = in_order * ((before < params.top_p) | (params.top_p == 1)) * (weights[order] >= params.min_p)
    doubtful = (abs(before - params.top_p) < 1e-5) | (abs(weights[order] - params.min_p) < 1e-4 * params.min_p)
    of_token, is_doubtful = np.zeros(len(order)), np.zeros(len(order), np.bool_)
    of_token[order], is_doubtful[order] = kept / kept.sum(), doubtful
    return of_token, is_doubtful


def logits_of(shape: str, rows: int, vocab_size: int, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    values: Floats = rng.standard_normal((rows, vocab_size)).astype(np.float32)
    if shape == "peaked":
        values *= 6
    if shape == "tied":
        values = np.round(values)
    if shape == "masked":
        values[rng.random(values.shape) < 0.9] = -np.inf
        values[:, rng.integers(vocab_size)] = 0
    return values


def chi_square_at_most(freedom: int) -> float:
    """Return what one of 100,000 statistics exceeds (Wilson and Hilferty 1931)."""
    spread = 2 / (9 * freedom) if freedom else 0.0
    return float(freedom * (1 - spread + 4.27 * np.sqrt(spread)) ** 3)


SHAPES = ("flat", "peaked", "tied", "masked")


@by_both
@settings(max_examples=100)
@given(
    shape=st.sampled_from(SHAPES),
    vocab_size=st.sampled_from([1, 2, 30, 64, 65, 500, 3000]),
    seed=st.integers(0, 10_000),
    temperature=st.sampled_from([1e-300, 1e-3, 0.5, 1.0, 4.0]),
    top_k=st.sampled_from([0, 0, 1, 5, 60, 400, 2999]),
    top_p=st.sampled_from([1.0, 1.0, 0.999999, 0.95, 0.5, 0.1, 1e-9]),
    min_p=st.sampled_from([0.0, 0.0, 0.02, 0.7, 1.0]),
)
def test_only_what_the_filters_keep_is_drawn(
    draw: Draw,
    shape: str,
    vocab_size: int,
    seed: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
) -> None:
    one = row(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    values = logits_of(shape, 1, vocab_size, seed)
    expected, doubtful = probabilities(values[0], one.params)

    for _ in range(5):
        (token,) = draw(values, [one]).tolist()
        # What single precision takes for nothing may be drawn by no more than that.
        assert expected[token] > 0 or doubtful[token]


@by_both
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.get("temperature", 1) > 1e-3], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_draws_follow_the_distribution(draw: Draw, shape: str, kind: dict[str, Any]) -> None:
    rng, rows, rounds, vocab_size = np.random.default_rng(1), 64, 60, 800
    values = np.repeat(logits_of(shape, 1, vocab_size, 5), rows, axis=0)
    expected, doubtful = probabilities(values[0], row(**kind).params)

    drawn = np.concatenate([draw(values, [row(rng, **kind)] * rows) for _ in range(rounds)])

    counts, means = np.bincount(drawn, minlength=vocab_size), expected * rows * rounds
    assert not counts[(expected == 0) & ~doubtful].any()
    often = means >= 5
    rare = ~often  # added up, as χ² asks for means that are not small
    observed, mean = np.append(counts[often], counts[rare].sum()), np.append(means[often], means[rare].sum())
    observed, mean = observed[mean > 0], mean[mean > 0]
    assert ((observed - mean) ** 2 / mean).sum() <= chi_square_at_most(len(mean) - 1) + 1e-9


@by_both
@pytest.mark.parametrize("vocab_size", [3, 64, 65, 900])
def test_a_seed_draws_the_same_in_every_company(draw: Draw, vocab_size: int) -> None:
    values = np.concatenate([logits_of(shape, 16, vocab_size, 2) for shape in SHAPES])

    def rows() -> list[Row]:
        return [row(**KINDS[place % len(KINDS)], seed=place) for place in range(len(values))]

    alone = [int(draw(values[place : place + 1], [one])[0]) for place, one in enumerate(rows())]
    for size in range(1, len(values) + 1):
        assert draw(values[:size], rows()[:size]).tolist() == alone[:size]
    assert draw(values[::-1].copy(), rows()[::-1]).tolist() == alone[::-1]


@by_both
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_seed_draws_the_same_among_rows_that_ask_the_same(draw: Draw, kind: dict[str, Any]) -> None:
    values = logits_of("flat", 64, 900, 3)

    def rows() -> list[Row]:
        return [row(**kind, seed=place) for place in range(len(values))]

    alone = [int(draw(values[place : place + 1], [one])[0]) for place, one in enumerate(rows())]
    for size in (1, 2, 3, 5, 31, 32, 64):
        assert draw(values[:size], rows()[:size]).tolist() == alone[:size]


@by_both
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("broken", [np.nan, -np.inf, np.inf])
def test_a_row_without_numbers_gets_some_token_and_leaves_the_others_alone(
    draw: Draw, kind: dict[str, Any], broken: float
) -> None:
    values = logits_of("flat", 3, 900, 4)
    (expected,) = draw(values[2:].copy(), [row(**kind, seed=2)]).tolist()
    values[1] = broken

    drawn = draw(values, [row(**kind, seed=place) for place in range(3)]).tolist()

    assert drawn[2] == expected
    assert 0 <= drawn[1] < 900


@by_both
@pytest.mark.parametrize(
    "params",
    [
        *({}, {"top_p": 0.9}, {"min_p": 0.1}, {"top_k": 5}),
        *({"top_p": 0.9, "min_p": 0.1}, {"top_k": 300, "min_p": 0.1}, {"top_k": 5, "min_p": 0.1}),
    ],
    ids=str,
)
def test_a_logit_beyond_all_numbers_ends_the_draw(draw: Draw, params: dict[str, float]) -> None:
    logits = np.zeros((2, 500), np.float32)
    logits[0, 7] = np.inf
    rows = [Row(SamplingParams(1, temperature=1.0, **params), [], [], np.random.default_rng(0)) for _ in range(2)]  # type: ignore[arg-type]

    with np.errstate(invalid="ignore"):  # ∞ − ∞
        drawn = draw(logits, rows)

    assert 0 <= drawn[0] < 500 and 0 <= drawn[1] < 500


@by_both
def test_a_draw_within_top_p_begins_anew_where_its_rounds_are_used_up(
    monkeypatch: pytest.MonkeyPatch, draw: Draw
) -> None:
    monkeypatch.setattr(drawing, "ROUNDS", 1)

    test_draws_follow_the_distribution(draw, "flat", {"top_p": 0.5, "temperature": 2.0})


@pytest.mark.parametrize("shape", SHAPES)
def test_our_own_operator_draws_what_numpy_draws(shape: str) -> None:
    differ = count = 0
    for vocab_size in (1, 2, 15, 16, 17, 63, 64, 65, 800, 3001):
        values = logits_of(shape, 50, vocab_size, vocab_size)
        for kind in KINDS:
            numpy, ours = (
                draw(values, [row(**kind, seed=place) for place in range(len(values))])
                for draw in (drawing.draw, draw_by_own)
            )
            differ, count = differ + int((numpy != ours).sum()), count + len(values)
    # A chance of 64 bits is within single precision's rounding of a border once in a million times a few borders.
    assert differ <= count / 1000


@by_both
def test_a_token_without_a_number_is_none_of_a_large_top_k(draw: Draw) -> None:
    values = logits_of("flat", 1, 5000, 1)
    values[0, 7] = np.nan
    drawn = [int(draw(values, [row(top_k=300, seed=seed)])[0]) for seed in range(20)]

    assert 7 not in drawn and len(set(drawn)) > 10


def test_our_own_operator_draws_many_rows_on_several_threads_as_it_draws_each_alone() -> None:
    values = logits_of("peaked", 12, 30_011, 6)
    asked: list[dict[str, Any]] = [{"top_p": 0.9}, {}, {"min_p": 0.1}]

    def rows() -> list[Row]:
        return [row(**asked[place % len(asked)], seed=place) for place in range(len(values))]

    alone = [int(draw_by_own(values[place : place + 1], [one])[0]) for place, one in enumerate(rows())]
    assert draw_by_own(values, rows()).tolist() == alone
