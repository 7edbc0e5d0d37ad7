from __future__ import annotations

import numpy as np
import pytest

from service.engine.arrays import Doubles, Floats
from service.engine.logprobs import scored


def logits_of(rows: int, vocab_size: int) -> Floats:
    rng = np.random.default_rng(0)
    values: Floats = (4 * rng.standard_normal((rows, vocab_size))).astype(np.float32)
    values[:, ::3] = np.round(values[:, ::3])  # ties
    return values


def reference(logits: Floats) -> Doubles:
    values = logits.astype(np.float64)
    shifted = values - values.max(axis=-1, keepdims=True)
    normalised: Doubles = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return normalised


@pytest.mark.parametrize("vocab_size", [1, 7, 64, 1000, 5003])
def test_log_probabilities_and_alternatives_are_those_of_a_full_sort(vocab_size: int) -> None:
    values = logits_of(70, vocab_size)
    tokens = np.arange(70) * 7 % vocab_size
    alternatives = [row % 8 for row in range(70)]

    chosen = scored(values, tokens, alternatives)

    for row, token in enumerate(chosen):
        of_row = reference(values[row])
        expected = np.argsort(-values[row], kind="stable")[: alternatives[row]].tolist()
        assert token.id == tokens[row]
        assert token.logprob == pytest.approx(of_row[token.id], abs=1e-5)
        assert [other for other, _ in token.top] == expected
        assert [value for _, value in token.top] == pytest.approx(of_row[expected].tolist(), abs=1e-5)


def test_a_row_is_scored_the_same_alone_and_among_others_to_the_last_bit() -> None:
    values = logits_of(70, 1000)
    tokens, alternatives = np.arange(70), [row % 4 for row in range(70)]

    together = scored(values, tokens, alternatives)

    for row in range(70):
        one = slice(row, row + 1)
        assert scored(values[one], tokens[one], alternatives[one]) == together[one]


def test_impossible_tokens_are_no_alternatives() -> None:
    values = np.array([[0, -np.inf, 1, -np.inf]], np.float32)

    (token,) = scored(values, np.array([1]), [4])

    assert token.logprob == -np.inf
    assert [other for other, _ in token.top] == [2, 0]
