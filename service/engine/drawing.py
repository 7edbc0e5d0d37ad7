"""Seeded draws from the filtered distributions, without sorting a vocabulary.

A row's own parameters alone say which way is taken, so its draw is the same in any company:

* temperature 0: the likeliest token.
* a small top-k: its tokens, in order, and the filters among them.
* else: a pass over the weights of all tokens (`passes.py`).

Letters: R rows, V vocab_size, K the largest top-k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from service.engine.arrays import Doubles, Floats, Ids, take
from service.engine.columns import width_of
from service.engine.passes import NO_NUMBERS, NUMPY, UNDECIDED, Asked, Passes, place_of_each
from service.engine.sampling_params import Row, SamplingParams

ROUNDS = 32  # of a draw within top-p, where each halves what is left at least half the time; then it begins anew
IN_ORDER = 256  # tokens of a top-k that are put in order; for more, filters without an order are quicker

Mask = NDArray[np.bool_]
Draw = Callable[[Floats, Sequence[Row], Passes], Ids]  # logits (R, V) → token ids (R,)


def draw(logits: Floats, rows: Sequence[Row], passes: Passes = NUMPY) -> Ids:
    """Choose a token for each row, the likeliest at temperature 0: logits (R, V) → ids (R,)."""
    ways: dict[Draw, list[int]] = {}
    for place, row in enumerate(rows):
        ways.setdefault(_way(row.params, logits.shape[1]), []).append(place)
    if len(ways) == 1:  # as mostly
        (way,) = ways
        return way(logits, rows, passes)
    drawn = np.empty(len(rows), np.int64)
    for way, places in ways.items():
        drawn[places] = way(take(logits, places), [rows[place] for place in places], passes)
    return drawn


def _way(params: SamplingParams, vocab_size: int) -> Draw:
    if params.temperature == 0:
        return _likeliest_of
    if 0 < params.top_k <= min(IN_ORDER, width_of(vocab_size)):
        return _draw_among_top_k
    return _draw_within_top_p if params.top_p < 1 else _draw_among_all


def _likeliest_of(logits: Floats, _rows: Sequence[Row], _passes: Passes) -> Ids:
    ids: Ids = logits.argmax(axis=-1)
    return ids


def _draw_among_top_k(logits: Floats, rows: Sequence[Row], passes: Passes) -> Ids:
    """Draw among the top-k, in order of their logits."""
    best, ids = passes.likeliest(logits, [row.params.top_k for row in rows])  # (R, K)
    temperatures = np.array([row.params.temperature for row in rows])[:, None]
    weights = _weights_of(best, best[:, :1], temperatures)
    cumulative = np.cumsum(weights * kept_by_filters(weights, rows), axis=-1)
    places = place_of_each(cumulative, np.array([row.rng.random() for row in rows]))
    drawn: Ids = ids[np.arange(len(rows)), places]
    return drawn


def kept_by_filters(weights: Doubles, rows: Sequence[Row]) -> Mask:
    """Return which of descending weights (R, K) pass top-k, top-p (Holtzman et al. 2020) and min-p, in this order."""
    top_k = np.array([row.params.top_k or weights.shape[-1] for row in rows])[:, None]
    top_p, min_p = (np.array([getattr(row.params, name) for row in rows])[:, None] for name in ("top_p", "min_p"))
    ranks = np.arange(weights.shape[-1])
    cumulative = np.cumsum(weights * (ranks < top_k), axis=-1)
    before = np.concatenate((np.zeros((len(rows), 1)), cumulative[:, :-1]), axis=-1)
    # The smallest set that reaches top_p, hence always the likeliest.
    return (ranks < top_k) & (before < top_p * cumulative[:, -1:]) & (weights >= min_p)


def _draw_within_top_p(logits: Floats, rows: Sequence[Row], passes: Passes) -> Ids:
    """Draw from the smallest set of tokens that reaches top-p."""
    drawn = np.full(len(rows), UNDECIDED)
    while len(pending := np.flatnonzero(drawn == UNDECIDED)):
        places = pending.tolist()
        drawn[pending] = _by_weights(take(logits, places), [rows[place] for place in places], passes, ROUNDS)
    return drawn


def _draw_among_all(logits: Floats, rows: Sequence[Row], passes: Passes) -> Ids:
    return _by_weights(logits, rows, passes, 1)


def _by_weights(logits: Floats, rows: Sequence[Row], passes: Passes, rounds: int) -> Ids:
    temperatures, top_k, top_p, min_p = (
        np.array([getattr(row.params, name) for row in rows]) for name in ("temperature", "top_k", "top_p", "min_p")
    )
    # Of the smallest temperatures a factor that is a number still; −∞ is right for all but the likeliest.
    factors = (1 / np.maximum(temperatures, np.finfo(np.float32).tiny)).astype(np.float32)
    chances = np.array([row.rng.random((rounds, 2)) for row in rows])
    drawn = passes.draw(logits, Asked(factors, top_k, top_p.astype(np.float64), min_p.astype(np.float32), chances))
    for place in np.flatnonzero(drawn == NO_NUMBERS).tolist():
        drawn[place] = logits[place].argmax()  # any token is as good
    return drawn


def _weights_of(logits: Floats, highest: Floats, temperatures: Doubles) -> Doubles:
    """Return what logits (R, n) weigh at temperatures (R, 1), where the highest (R, 1) weighs 1."""
    with np.errstate(over="ignore"):  # of the smallest temperatures: −∞ is right
        weights: Doubles = np.exp((logits.astype(np.float64) - highest) / temperatures)
    return weights
