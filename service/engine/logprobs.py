"""Log probabilities of tokens, and of the likeliest beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from service.engine.columns import Doubles, Floats, column_maxima, column_sums, likeliest, pieces
from service.engine.sampling_params import Ids

SCORED_ROWS = 32  # looked at together; small arrays are made for each of a prompt's pieces


class SampledToken(NamedTuple):
    """A chosen token; with `logprobs` asked for, its natural-log probability and the likeliest alternatives.

    `end`: "stop" if the grammar is complete with this token; "grammar" if nothing may follow and it does not count.
    """

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    end: Literal["stop", "grammar"] | None = None


def scored(logits: Floats, tokens: Ids, alternatives: Sequence[int]) -> list[SampledToken]:
    """Return a token for each row with its log probability, and so many of the likeliest: logits (R, V), ids (R,).

    Tokens that are impossible are none of the likeliest, so there may be fewer.
    """
    return [
        token
        for piece in pieces(len(logits), SCORED_ROWS)
        for token in _scored_piece(logits[piece], tokens[piece], alternatives[piece])
    ]


def _scored_piece(logits: Floats, tokens: Ids, alternatives: Sequence[int]) -> list[SampledToken]:
    maxima = column_maxima(logits)
    totals = np.concatenate([log_sum_exp(logits[piece], maxima[piece]) for piece in pieces(len(logits))])  # (R, 1)
    chosen = (logits[np.arange(len(tokens)), tokens, None] - totals)[:, 0].tolist()
    best, ids = likeliest(logits, maxima, [min(count, logits.shape[1]) for count in alternatives])
    best_of = best - totals
    tops = [tuple(zip(*row, strict=True)) for row in zip(ids.tolist(), best_of.tolist(), strict=True)]
    if np.isneginf(best_of).any():
        tops = [tuple(pair for pair in top if pair[1] > -np.inf) for top in tops]
    return [SampledToken(*each) for each in zip(tokens.tolist(), chosen, tops, strict=True)]


def log_sum_exp(logits: Floats, maxima: Floats) -> Doubles:
    """Return the logarithm of the sum of all exponentials: logits (R, V), column maxima (R, W) → (R, 1)."""
    highest = maxima.max(axis=-1, keepdims=True)
    weights: Floats = logits - highest
    np.exp(weights, out=weights)
    totals: Doubles = highest + np.log(column_sums(weights).sum(axis=-1, keepdims=True))
    return totals
