"""Seeded draws from the filtered distributions, without sorting a vocabulary.

A row's own parameters alone say which way is taken, so its draw is the same in any company:

* temperature 0: the likeliest token.
* a small top-k: its tokens, in order, and the filters among them.
* else: a column by the sum of its weights, and one of its tokens by their own. With top-p again, among the likelier
  ones, while the token is outside of the smallest set that reaches it (the pivots of "Sorting-Free GPU Kernels for LLM
  Sampling", FlashInfer 2025); most draws need one or two rounds. A large top-k hides all other tokens first.

The last of these is an operator of our own where there is one (`native/drawing.py`). It draws the same tokens, but for
a chance so near to the border of two that rounding decides.

Letters: R rows, V vocab_size, W columns (see `columns.py`), K the largest top-k, T rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.engine.columns import (
    Doubles,
    Floats,
    column_maxima,
    column_sums,
    likeliest,
    pieces,
    take,
    width_of,
)
from service.engine.sampling_params import Ids, Row, SamplingParams

ROUNDS = 32  # of a draw within top-p, where each halves what is left at least half the time; then it begins anew
UNDECIDED, NO_NUMBERS = -1, -2  # instead of a token: all rounds have failed; a logit is no number, or infinite
PIECE_TOKENS = 65536  # of several rows, which lie in a core's second-level cache with as many weights
IN_ORDER = 256  # tokens of a top-k that are put in order; for more, filters without an order are quicker

Mask = NDArray[np.bool_]


class Asked(NamedTuple):
    """What rows ask of draws by weights, and the chances of their rounds, from 0 to below 1."""

    factors: Floats  # (R,): 1 / temperature
    top_p: Doubles  # (R,)
    min_p: Floats  # (R,)
    chances: Doubles  # (R, T, 2): for a column, and for one of its tokens

    def of(self, some: slice) -> Asked:
        """Return what some of the rows ask."""
        return Asked(self.factors[some], self.top_p[some], self.min_p[some], self.chances[some])


Weigh = Callable[[Floats, Asked], Ids]  # logits (R, V) → token ids (R,), or `UNDECIDED` or `NO_NUMBERS`
Draw = Callable[[Floats, Sequence[Row], Weigh], Ids]  # logits (R, V) → token ids (R,)


def weigh(logits: Floats, asked: Asked) -> Ids:
    """Draw by weights, in NumPy."""
    if (asked.top_p < 1).any():  # row by row, as one row's weights fit the core's nearer cache and many do not
        return np.array([_weigh_in_rounds(logits[row], asked.of(row)) for row in pieces(len(logits), 1)])
    of_piece = max(1, PIECE_TOKENS // logits.shape[1])
    return np.concatenate([_weigh_once(logits[piece], asked.of(piece)) for piece in pieces(len(logits), of_piece)])


def draw(logits: Floats, rows: Sequence[Row], weigh: Weigh = weigh) -> Ids:
    """Choose a token for each row, the likeliest at temperature 0: logits (R, V) → ids (R,)."""
    ways: dict[Draw, list[int]] = {}
    for place, row in enumerate(rows):
        ways.setdefault(_way(row.params, logits.shape[1]), []).append(place)
    if len(ways) == 1:  # as mostly
        (way,) = ways
        return way(logits, rows, weigh)
    drawn = np.empty(len(rows), np.int64)
    for way, places in ways.items():
        drawn[places] = way(take(logits, places), [rows[place] for place in places], weigh)
    return drawn


def _way(params: SamplingParams, vocab_size: int) -> Draw:
    if params.temperature == 0:
        return _likeliest_of
    if 0 < params.top_k <= min(IN_ORDER, width_of(vocab_size)):
        return _draw_among_top_k
    if 0 < params.top_k < vocab_size:
        return _draw_among_many
    return _draw_within_top_p if params.top_p < 1 else _draw_among_all


def _likeliest_of(logits: Floats, _rows: Sequence[Row], _weigh: Weigh) -> Ids:
    ids: Ids = logits.argmax(axis=-1)
    return ids


def _draw_among_top_k(logits: Floats, rows: Sequence[Row], _weigh: Weigh) -> Ids:
    """Draw among the top-k, in order of their logits."""
    best, ids = likeliest(logits, column_maxima(logits), [row.params.top_k for row in rows])  # (R, K)
    temperatures = np.array([row.params.temperature for row in rows])[:, None]
    weights = _weights_of(best, best[:, :1], temperatures)
    cumulative = np.cumsum(weights * kept_by_filters(weights, rows), axis=-1)
    places = _place_of_each(cumulative, np.array([row.rng.random() for row in rows]))
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


def _draw_among_many(logits: Floats, rows: Sequence[Row], weigh: Weigh) -> Ids:
    """Draw among a large top-k."""
    are_top = np.array([_are_top_k(own, row.params.top_k) for own, row in zip(logits, rows, strict=True)])
    return _draw_within_top_p(np.where(are_top, logits, np.float32(-np.inf)), rows, weigh)


def _draw_within_top_p(logits: Floats, rows: Sequence[Row], weigh: Weigh) -> Ids:
    """Draw from the smallest set of tokens that reaches top-p."""
    drawn = np.full(len(rows), UNDECIDED)
    while len(pending := np.flatnonzero(drawn == UNDECIDED)):
        places = pending.tolist()
        drawn[pending] = _by_weights(take(logits, places), [rows[place] for place in places], weigh, ROUNDS)
    return drawn


def _draw_among_all(logits: Floats, rows: Sequence[Row], weigh: Weigh) -> Ids:
    return _by_weights(logits, rows, weigh, 1)


def _by_weights(logits: Floats, rows: Sequence[Row], weigh: Weigh, rounds: int) -> Ids:
    temperatures, top_p, min_p = (
        np.array([getattr(row.params, name) for row in rows]) for name in ("temperature", "top_p", "min_p")
    )
    # Of the smallest temperatures a factor that is a number still; −∞ is right for all but the likeliest.
    factors = (1 / np.maximum(temperatures, np.finfo(np.float32).tiny)).astype(np.float32)
    chances = np.array([row.rng.random((rounds, 2)) for row in rows])
    drawn = weigh(logits, Asked(factors, top_p.astype(np.float64), min_p.astype(np.float32), chances))
    for place in np.flatnonzero(drawn == NO_NUMBERS).tolist():
        drawn[place] = logits[place].argmax()  # any token is as good
    return drawn


def _weigh_once(logits: Floats, asked: Asked) -> Ids:
    """Draw a token for each of some rows, without top-p: (R, V) → (R,)."""
    weights, sums, totals = _weights_and_sums(logits, asked)
    return np.where(np.isfinite(totals), _tokens_of(weights, sums, asked.chances[:, 0]), NO_NUMBERS)


def _weigh_in_rounds(logits: Floats, asked: Asked) -> int:
    """Draw one token, and again among the likelier ones while it is not within top-p: (1, V) → id."""
    (weights,), (sums,), (total,) = _weights_and_sums(logits, asked)
    (top_p,), (chances,) = asked.top_p, asked.chances
    if not np.isfinite(total):
        return NO_NUMBERS
    for of_round in chances:
        token = _token_of(weights, sums, of_round)
        weights *= _are_likelier(logits[0], token)
        sums = column_sums(weights)
        if top_p >= 1 or sums.sum() < top_p * total:
            return token
    return UNDECIDED


def _weights_and_sums(logits: Floats, asked: Asked) -> tuple[Floats, Doubles, Doubles]:
    """Return what tokens weigh that min-p keeps (R, V), their columns' sums (R, W), and the totals of all tokens (R,).

    The likeliest weighs 1, all in single precision.
    """
    weights: Floats = logits - logits.max(axis=-1, keepdims=True)
    with np.errstate(over="ignore"):
        weights *= asked.factors[:, None]
    np.exp(weights, out=weights)
    sums = column_sums(weights)
    totals: Doubles = sums.sum(axis=-1)
    if asked.min_p.any():
        weights *= weights >= asked.min_p[:, None]
        sums = column_sums(weights)
    return weights, sums, totals


def _tokens_of(weights: Floats, sums: Doubles, chances: Doubles) -> Ids:
    """Draw from weights (R, V), whose columns' sums are (R, W), by two chances (R, 2) each: a column, and its token."""
    columns = _place_of_each(sums.cumsum(axis=-1), chances[:, 0])
    vocab_size, width = weights.shape[1], sums.shape[1]
    ids = columns[:, None] + np.arange(0, vocab_size, width)  # (R, lines), of which the last may be beyond all tokens
    own = np.take_along_axis(weights, np.minimum(ids, vocab_size - 1), axis=-1) * (ids < vocab_size)
    drawn: Ids = columns + width * _place_of_each(own.cumsum(axis=-1, dtype=np.float64), chances[:, 1])
    return drawn


def _token_of(weights: Floats, sums: Doubles, chances: Doubles) -> int:
    """Do the same for one row: (V,), (W,), (2,) → id."""
    column = _place_of(sums.cumsum(), chances[0])
    line = _place_of(weights[column :: len(sums)].astype(np.float64).cumsum(), chances[1])
    return column + len(sums) * line


def _are_top_k(logits: Floats, top_k: int) -> Mask:
    """Return which of the tokens are the top-k, ties by id: (V,) → (V,)."""
    threshold = np.partition(logits, len(logits) - top_k)[len(logits) - top_k]
    are_top: Mask = logits >= threshold
    surplus = np.count_nonzero(are_top) - top_k
    if surplus > 0:
        are_top[np.flatnonzero(logits == threshold)[-surplus:]] = False
    return are_top


def _are_likelier(logits: Floats, token: int) -> Mask:
    """Return which tokens are likelier than this one, ties by id: (V,) → (V,)."""
    are_likelier = np.empty(len(logits), np.bool_)
    np.greater_equal(logits[:token], logits[token], out=are_likelier[:token])
    np.greater(logits[token:], logits[token], out=are_likelier[token:])
    return are_likelier


def _weights_of(logits: Floats, highest: Floats, temperatures: Doubles) -> Doubles:
    """Return what logits (R, n) weigh at temperatures (R, 1), where the highest (R, 1) weighs 1."""
    with np.errstate(over="ignore"):  # of the smallest temperatures: −∞ is right
        weights: Doubles = np.exp((logits.astype(np.float64) - highest) / temperatures)
    return weights


def targets_of(chances: Doubles | float, totals: Doubles) -> Doubles:
    """Return the cumulative weight that each chance of a total asks for, below the total, which nothing passes."""
    targets: Doubles = np.minimum(chances * totals, np.nextafter(totals, 0))  # a product may be rounded up to it
    return targets


def _place_of_each(cumulative: Doubles, chances: Doubles) -> Ids:
    """Return where cumulative weights (R, n) pass a chance (R,) of their total: (R,). No place weighs nothing."""
    passed = np.count_nonzero(cumulative <= targets_of(chances, cumulative[:, -1])[:, None], axis=-1)
    places: Ids = np.minimum(passed, cumulative.shape[1] - 1)
    return places


def _place_of(cumulative: Doubles, chance: float) -> int:
    """Do the same for one row: (n,) → place."""
    return min(int(cumulative.searchsorted(targets_of(chance, cumulative[-1]), side="right")), len(cumulative) - 1)
