from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.engine.arrays import Floats, Ids
from service.engine.columns import column_maxima, column_sums, likeliest, width_of


def coarse(rows: int, vocab_size: int, seed: int = 0) -> Floats:
    """Return logits of few different values, so that there are ties, and some that forbid."""
    rng = np.random.default_rng(seed)
    values = rng.integers(-8, 8, (rows, vocab_size)).astype(np.float32)
    values[rng.random(values.shape) < 0.2] = -np.inf
    values[:, rng.integers(vocab_size)] = 3
    return values


def sorted_reference(row: Floats, count: int) -> list[int]:
    best: Ids = np.argsort(-row, kind="stable")[:count]
    return [token for token in best.tolist() if row[token] > -np.inf]


@pytest.mark.parametrize("vocab_size", [1, 2, 63, 64, 65, 127, 128, 129, 1000, 4097])
def test_columns_hold_every_token_once(vocab_size: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal((3, vocab_size)).astype(np.float32)
    width = width_of(vocab_size)
    columns = [values[:, column::width] for column in range(width)]

    assert column_maxima(values).tolist() == np.stack([column.max(-1) for column in columns], -1).tolist()
    np.testing.assert_allclose(column_sums(values), np.stack([c.sum(-1) for c in columns], -1), atol=1e-4)


@pytest.mark.parametrize("vocab_size", [1, 2, 64, 65, 1000, 4097])
def test_columns_of_a_row_are_the_same_alone_and_among_others_to_the_last_bit(vocab_size: int) -> None:
    values = np.random.default_rng(0).standard_normal((64, vocab_size)).astype(np.float32)

    for rows in (1, 2, 3, 7, 32, 64):
        together = column_sums(values[:rows])
        assert np.array_equal(together, np.stack([column_sums(row) for row in values[:rows]]))
        assert np.array_equal(together, np.concatenate([column_sums(values[i : i + 1]) for i in range(rows)]))


@settings(max_examples=60)
@given(
    vocab_size=st.sampled_from([1, 5, 64, 65, 300, 1000]),
    counts=st.lists(st.integers(0, 1000), min_size=1, max_size=6),
    seed=st.integers(0, 1000),
)
def test_the_likeliest_are_those_of_a_stable_sort(vocab_size: int, counts: list[int], seed: int) -> None:
    counts = [min(count, vocab_size) for count in counts]
    values = coarse(len(counts), vocab_size, seed)

    best, ids = likeliest(values, column_maxima(values), counts)

    for row, count in enumerate(counts):
        expected = sorted_reference(values[row], count)
        assert ids[row, : len(expected)].tolist() == expected
        assert best[row, : len(expected)].tolist() == values[row, expected].tolist()
        assert (best[row, len(expected) :] == -np.inf).all()
