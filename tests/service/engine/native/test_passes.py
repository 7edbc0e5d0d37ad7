"""Passes over a vocabulary: NumPy's and our own operators' against a full sort, and against each other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from service.engine.arrays import Floats
from service.engine.native import vocabulary
from service.engine.native.vocabulary import OwnPasses, fastest_passes
from service.engine.passes import NUMPY, Asked, Passes
from service.engine.session import SessionOptions
from tests.service.engine.native.libraries import own_passes


@pytest.fixture(params=["NumPy", "our own operators"])
def passes(request: pytest.FixtureRequest) -> Passes:
    return NUMPY if request.param == "NumPy" else own_passes()


def logits_of(rows: int, vocab_size: int) -> Floats:
    rng = np.random.default_rng(vocab_size)
    values: Floats = (4 * rng.standard_normal((rows, vocab_size))).astype(np.float32)
    values[:, ::3] = np.round(values[:, ::3])  # ties
    values[:, 5::7] = -np.inf
    return values


@pytest.mark.parametrize("vocab_size", [1, 2, 63, 64, 65, 127, 1000, 4097])
def test_the_likeliest_are_those_of_a_full_sort(passes: Passes, vocab_size: int) -> None:
    values = logits_of(40, vocab_size)
    counts = [min(vocab_size, row * row) for row in range(40)]

    best, ids = passes.likeliest(values, counts)

    assert best.shape == ids.shape == (40, max(counts))
    for row, count in enumerate(counts):
        possible = int((values[row] > -np.inf).sum())
        expected = np.argsort(-values[row], kind="stable")[: min(count, possible)]
        assert ids[row, : len(expected)].tolist() == expected.tolist()
        assert best[row, : len(expected)].tolist() == values[row][expected].tolist()
        assert (best[row, len(expected) :] == -np.inf).all()


def test_none_may_be_wanted_of_any_row(passes: Passes) -> None:
    best, ids = passes.likeliest(logits_of(3, 100), [0, 0, 0])

    assert best.shape == ids.shape == (3, 0)


@pytest.mark.parametrize("value", [0.0, -np.inf])
def test_of_equals_the_first_are_the_likeliest(passes: Passes, value: float) -> None:
    best, ids = passes.likeliest(np.full((1, 700), value, np.float32), [50])

    assert best.tolist() == [[value] * 50]
    assert ids.tolist() == [list(range(50)) if value == 0 else [0] * 50]


@pytest.mark.parametrize("vocab_size", [1, 7, 64, 1000, 5003])
def test_log_totals_are_those_of_double_precision(passes: Passes, vocab_size: int) -> None:
    values = logits_of(70, vocab_size)
    exact = np.log(np.exp(values.astype(np.float64)).sum(axis=-1, keepdims=True))

    np.testing.assert_allclose(passes.log_totals(values), exact, atol=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_row_without_numbers_leaves_the_others_alone(passes: Passes, broken: float) -> None:
    values = logits_of(3, 900)
    expected = (passes.log_totals(values), *passes.likeliest(values, [5, 900, 5]))
    values[1] = broken
    values[1, 100:200] = 1

    found = (passes.log_totals(values), *passes.likeliest(values, [5, 900, 5]))

    for place in range(3):
        np.testing.assert_array_equal(found[place][[0, 2]], expected[place][[0, 2]])


@pytest.mark.parametrize("vocab_size", [900, 30_011])
def test_a_row_has_the_same_alone_and_among_others_to_the_last_bit(passes: Passes, vocab_size: int) -> None:
    values = logits_of(12, vocab_size)
    counts = [7 * row for row in range(12)]

    totals, (best, ids) = passes.log_totals(values), passes.likeliest(values, counts)

    for row, count in enumerate(counts):
        alone = values[row : row + 1].copy()
        assert passes.log_totals(alone) == totals[row]
        found, found_ids = passes.likeliest(alone, [count])
        assert found[0].tolist() == best[row, :count].tolist()
        assert found_ids[0].tolist() == ids[row, :count].tolist()


@pytest.mark.parametrize(
    ("name", "shape"),
    [("logits", (2, 0)), ("logits", (3, 5)), ("top_p", (2, 1)), ("min_p", (1,)), ("chances", (2, 4, 3))],
    ids=str,
)
def test_our_own_operator_refuses_what_does_not_belong_together(name: str, shape: tuple[int, ...]) -> None:
    asked: dict[str, Any] = {
        "factors": np.ones(2, np.float32),
        "top_k": np.zeros(2, np.int64),
        "top_p": np.ones(2),
        "min_p": np.zeros(2, np.float32),
        "chances": np.zeros((2, 4, 2)),
    }
    logits = np.zeros((2, 5), np.float32)
    if name == "logits":
        logits = np.zeros(shape, np.float32)
    else:
        asked[name] = np.zeros(shape, asked[name].dtype)

    with pytest.raises(Exception, match=r"trifold|INVALID_ARGUMENT"):
        own_passes().draw(logits, Asked(**asked))


def test_our_own_operator_refuses_more_tokens_than_ranks() -> None:
    inputs = {"logits": np.zeros((1, 9), np.float32), "counts": np.array([5]), "ranks": np.arange(3)}

    with pytest.raises(Exception, match="more than there are ranks"):
        own_passes()._likeliest.run(inputs)


def test_our_own_operators_are_taken_where_they_can_be_had() -> None:
    own_passes()  # or this is skipped

    assert isinstance(fastest_passes(SessionOptions(1)), OwnPasses)
    assert isinstance(fastest_passes(SessionOptions(1, cuda=True, cpu_fallback=True)), OwnPasses)
    assert fastest_passes(SessionOptions(1, native=False)) is NUMPY


def failing() -> Path:
    raise OSError(24, "Too many open files")


@pytest.mark.parametrize(
    "library", [lambda: None, lambda: Path("/nowhere.so"), failing], ids=["none", "no library", "a failure"]
)
def test_numpy_is_taken_where_our_own_operators_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, library: Callable[[], Path | None]
) -> None:
    monkeypatch.setattr(vocabulary, "native_library", library)

    assert fastest_passes(SessionOptions(1)) is NUMPY


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_what_is_no_number_is_none_of_the_likeliest(passes: Passes) -> None:
    values = logits_of(1, 900)
    expected, ids = passes.likeliest(values, [3])
    values[0, 0] = np.nan
    assert 0 not in ids

    found, found_ids = passes.likeliest(values, [3])
    assert found.tolist() == expected.tolist() and found_ids.tolist() == ids.tolist()
