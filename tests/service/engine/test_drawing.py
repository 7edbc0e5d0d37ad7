"""Draws against a slow reference: float64, and the whole vocabulary in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from service.engine import drawing
from service.engine.columns import Doubles, Floats
from service.engine.drawing import draw
from service.engine.sampling_params import Row, SamplingParams

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


@pytest.fixture(params=["small vocabulary", "large one"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw as from vocabularies of both kinds, of which the large ones would make tests slow."""
    if request.param == "large one":
        monkeypatch.setattr(drawing, "ALL_WEIGHED", 0)


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


@settings(max_examples=150)
@given(
    shape=st.sampled_from(SHAPES),
    vocab_size=st.sampled_from([1, 2, 30, 64, 65, 500, 3000]),
    seed=st.integers(0, 10_000),
    temperature=st.sampled_from([1e-300, 1e-3, 0.5, 1.0, 4.0]),
    top_k=st.sampled_from([0, 0, 1, 5, 60, 400, 2999]),
    top_p=st.sampled_from([1.0, 1.0, 0.999999, 0.95, 0.5, 0.1, 1e-9]),
    min_p=st.sampled_from([0.0, 0.0, 0.02, 0.7, 1.0]),
    all_weighed=st.sampled_from([drawing.ALL_WEIGHED, 0]),
)
def test_only_what_the_filters_keep_is_drawn(
    shape: str,
    vocab_size: int,
    seed: int,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    all_weighed: int,
) -> None:
    one = row(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    values = logits_of(shape, 1, vocab_size, seed)
    expected, doubtful = probabilities(values[0], one.params)

    for _ in range(5):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(drawing, "ALL_WEIGHED", all_weighed)
            (token,) = draw(values, [one]).tolist()
        # What single precision takes for nothing may be drawn by no more than that.
        assert expected[token] > 0 or doubtful[token]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.get("temperature", 1) > 1e-3], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_draws_follow_the_distribution(shape: str, kind: dict[str, Any]) -> None:
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


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("vocab_size", [3, 64, 65, 900])
def test_a_seed_draws_the_same_in_every_company(vocab_size: int) -> None:
    values = np.concatenate([logits_of(shape, 16, vocab_size, 2) for shape in SHAPES])

    def rows() -> list[Row]:
        return [row(**KINDS[place % len(KINDS)], seed=place) for place in range(len(values))]

    alone = [int(draw(values[place : place + 1], [one])[0]) for place, one in enumerate(rows())]
    for size in range(1, len(values) + 1):
        assert draw(values[:size], rows()[:size]).tolist() == alone[:size]
    assert draw(values[::-1].copy(), rows()[::-1]).tolist() == alone[::-1]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_seed_draws_the_same_among_rows_that_ask_the_same(kind: dict[str, Any]) -> None:
    values = logits_of("flat", 64, 900, 3)

    def rows() -> list[Row]:
        return [row(**kind, seed=place) for place in range(len(values))]

    alone = [int(draw(values[place : place + 1], [one])[0]) for place, one in enumerate(rows())]
    for size in (1, 2, 3, 5, 31, 32, 64):
        assert draw(values[:size], rows()[:size]).tolist() == alone[:size]


@pytest.mark.usefixtures("way")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("broken", [np.nan, -np.inf, np.inf])
def test_a_row_without_numbers_gets_some_token_and_leaves_the_others_alone(kind: dict[str, Any], broken: float) -> None:
    values = logits_of("flat", 3, 900, 4)
    (expected,) = draw(values[2:].copy(), [row(**kind, seed=2)]).tolist()
    values[1] = broken

    drawn = draw(values, [row(**kind, seed=place) for place in range(3)]).tolist()

    assert drawn[2] == expected
    assert 0 <= drawn[1] < 900


@pytest.mark.parametrize(
    "params",
    [
        *({}, {"top_p": 0.9}, {"min_p": 0.1}, {"top_k": 5}),
        *({"top_p": 0.9, "min_p": 0.1}, {"top_k": 300, "min_p": 0.1}, {"top_k": 5, "min_p": 0.1}),
    ],
    ids=str,
)
def test_a_logit_beyond_all_numbers_ends_the_draw(params: dict[str, float]) -> None:
    logits = np.zeros((2, 500), np.float32)
    logits[0, 7] = np.inf
    rows = [Row(SamplingParams(1, temperature=1.0, **params), [], [], np.random.default_rng(0)) for _ in range(2)]  # type: ignore[arg-type]

    with np.errstate(invalid="ignore"):  # ∞ − ∞
        drawn = draw(logits, rows)

    assert 0 <= drawn[0] < 500 and 0 <= drawn[1] < 500
