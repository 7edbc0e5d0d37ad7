"""Seeded draws from the filtered distributions, without sorting a vocabulary.

A row's own parameters alone say which way is taken, so its draw is the same in any company:

* temperature 0: the likeliest token.
* no top-k and no top-p: a column by the sum of its weights, and one of its tokens by their own, of all rows together.
  Of a large vocabulary rejection: a column is proposed by its size and its maximum, a token in it at random, and taken
  with the ratio of its weight to the maximum's, so that only the columns' maxima are computed for all tokens.
* a small top-k: its tokens, in order, and the filters among them.
* top-p, or a large top-k: inversion of the cumulative weights, and rejection of what is outside the smallest set that
  reaches top-p. A token that is refused shows that this set lies among the likelier ones, which are drawn from next
  (the pivots of "Sorting-Free GPU Kernels for LLM Sampling", FlashInfer 2025). Most draws need one or two rounds.

Letters: R rows, V vocab_size, W columns (see `columns.py`), K the largest top-k.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from service.engine.columns import (
    Doubles,
    Floats,
    column_maxima,
    column_sums,
    heights,
    likeliest,
    pieces,
    take,
    width_of,
)
from service.engine.sampling_params import Ids, Row, SamplingParams

TRIES = 32  # proposals of a round; at worst every 64th is taken (`DEPTH`), of a flat distribution every fourth or so
ALL_WEIGHED = 16384  # tokens of a vocabulary that are weighed sooner than some of them are proposed and refused
PIECE_TOKENS = 65536  # of several rows, which lie in a core's second-level cache with as many weights
IN_ORDER = 256  # tokens of a top-k that are put in order; for more, filters without an order are quicker

Mask = NDArray[np.bool_]
Draw = Callable[[Floats, Sequence[Row]], Ids]  # logits (R, V) → token ids (R,)


def draw(logits: Floats, rows: Sequence[Row]) -> Ids:
    """Choose a token for each row, the likeliest at temperature 0: logits (R, V) → ids (R,)."""
    ways: dict[Draw, list[int]] = {}
    for place, row in enumerate(rows):
        ways.setdefault(_way(row.params, logits.shape[1]), []).append(place)
    if len(ways) == 1:  # as mostly
        (way,) = ways
        return way(logits, rows)
    drawn = np.empty(len(rows), np.int64)
    for way, places in ways.items():
        drawn[places] = way(take(logits, places), [rows[place] for place in places])
    return drawn


def _way(params: SamplingParams, vocab_size: int) -> Draw:
    if params.temperature == 0:
        return _likeliest_of
    if 0 < params.top_k <= min(IN_ORDER, width_of(vocab_size)):
        return _draw_among_top_k
    if params.top_p < 1 or 0 < params.top_k < vocab_size:
        return _draw_by_weights
    return _draw_among_all if vocab_size <= ALL_WEIGHED else _draw_by_bounds


def _likeliest_of(logits: Floats, _rows: Sequence[Row]) -> Ids:
    ids: Ids = logits.argmax(axis=-1)
    return ids


def _draw_among_all(logits: Floats, rows: Sequence[Row]) -> Ids:
    """Draw by the weights of all tokens, as many rows together as fit the core's nearer cache."""
    of_piece = PIECE_TOKENS // logits.shape[1]
    return np.concatenate([_draw_piece(logits[piece], rows[piece]) for piece in pieces(len(rows), of_piece)])


def _draw_piece(logits: Floats, rows: Sequence[Row]) -> Ids:
    """Draw a column by the sum of its weights, and one of its tokens by their own."""
    temperatures, min_p = (
        np.array([getattr(row.params, name) for row in rows], np.float32)[:, None] for name in ("temperature", "min_p")
    )
    weights = _weights_at(logits, temperatures)  # (R, V)
    if min_p.any():
        weights *= weights >= min_p
    sums = column_sums(weights)  # (R, W)
    chances = np.array([row.rng.random(2) for row in rows])
    columns = _place_of_each(sums.cumsum(axis=-1), chances[:, 0])
    vocab_size, width = weights.shape[1], sums.shape[1]
    ids = columns[:, None] + np.arange(0, vocab_size, width)  # (R, lines), of which the last may be beyond all tokens
    own = np.take_along_axis(weights, np.minimum(ids, vocab_size - 1), axis=-1) * (ids < vocab_size)
    drawn: Ids = columns + width * _place_of_each(own.cumsum(axis=-1, dtype=np.float64), chances[:, 1])
    return drawn


def _draw_by_bounds(logits: Floats, rows: Sequence[Row]) -> Ids:
    """Draw by rejection under the columns' maxima."""
    temperatures = np.array([row.params.temperature for row in rows])[:, None]
    min_p = np.array([row.params.min_p for row in rows])[:, None]
    maxima = column_maxima(logits)  # (R, W)
    highest = maxima.max(axis=-1, keepdims=True)
    of_column, width = heights(logits.shape[1]), maxima.shape[1]
    bounds = _weights_of(maxima, highest, temperatures)  # (R, W)
    cumulative = np.cumsum(bounds * of_column * (bounds >= min_p), axis=-1)
    is_finite = np.isfinite(highest[:, 0])
    drawn: Ids = np.empty(len(rows), np.int64)
    drawn[~is_finite] = logits[~is_finite].argmax(axis=-1)  # where any token is as good
    pending = np.flatnonzero(is_finite)
    while len(pending):
        chances = np.stack([rows[place].rng.random((3, TRIES)) for place in pending.tolist()])  # (R, 3, tries)
        # As `_invert` does, but with the arithmetic of all rows together.
        targets = targets_of(chances[:, 0], cumulative[pending, -1:])
        sought = zip(pending.tolist(), targets, strict=True)
        found = [cumulative[place].searchsorted(target, side="right") for place, target in sought]
        columns = np.minimum(found, cumulative.shape[1] - 1)  # of NaN
        lines = (chances[:, 1] * of_column[columns]).astype(np.int64)
        ids, which = columns + width * lines, pending[:, None]
        weights = _weights_of(logits[which, ids], highest[pending], temperatures[pending])  # (R, tries)
        # Written as ≥ rather than not <, so that weights that are NaN are not refused, or this would never end.
        is_refused = (chances[:, 2] * bounds[which, columns] >= weights) | (weights < min_p[pending])
        taken = is_refused.argmin(axis=-1)
        drawn[pending] = ids[np.arange(len(pending)), taken]
        pending = pending[is_refused.all(axis=-1)]
    return drawn


def _draw_among_top_k(logits: Floats, rows: Sequence[Row]) -> Ids:
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


def _draw_by_weights(logits: Floats, rows: Sequence[Row]) -> Ids:
    """Draw from the weights of all tokens; row by row, as one row's fit the core's nearer cache and many do not."""
    return np.array([_draw_from_weights(own, row) for own, row in zip(logits, rows, strict=True)])


def _draw_from_weights(logits: Floats, row: Row) -> int:
    """Draw one token from logits (V,), and again among the likelier ones while it is not one that the filters keep."""
    params = row.params
    weights = _all_weights(logits, params)  # (V,)
    sums = column_sums(weights)  # (W,)
    total = sums.sum()
    if not np.isfinite(total):  # where a logit is infinite, or none is a number, any token is as good
        return int(logits.argmax())
    reach = params.top_p * total if params.top_p < 1 else np.inf
    while True:
        token = _draw_one(weights, sums, row.rng)
        own = weights[token]
        weights *= _are_likelier(logits, token)
        sums = column_sums(weights)
        if sums.sum() < reach and own >= params.min_p:
            return token


def _all_weights(logits: Floats, params: SamplingParams) -> Floats:
    """Return what each token weighs at the row's temperature, (V,): the likeliest 1, those beyond top-k nothing."""
    weights = _weights_at(logits, np.float32(params.temperature))
    if 0 < params.top_k < len(logits):
        weights *= _are_top_k(logits, params.top_k)
    return weights


def _weights_at(logits: Floats, temperatures: Floats | np.float32) -> Floats:
    """Return what tokens (…, V) weigh at temperatures (…, 1) in single precision, the likeliest 1."""
    weights: Floats = logits - logits.max(axis=-1, keepdims=True)
    with np.errstate(over="ignore"):  # of the smallest temperatures: −∞ is right
        weights /= np.maximum(temperatures, np.finfo(np.float32).tiny)
    np.exp(weights, out=weights)
    return weights


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


def _draw_one(weights: Floats, sums: Doubles, rng: np.random.Generator) -> int:
    """Draw from weights (V,), whose columns' sums are (W,): a column first, then one of its tokens."""
    chances = rng.random(2)
    column = int(_invert(sums.cumsum(), chances[:1])[0])
    line = int(_invert(weights[column :: len(sums)].astype(np.float64).cumsum(), chances[1:])[0])
    return column + len(sums) * line


def _weights_of(logits: Floats, highest: Floats, temperatures: Doubles) -> Doubles:
    """Return what logits (R, n) weigh at temperatures (R, 1), where the highest (R, 1) weighs 1."""
    with np.errstate(over="ignore"):  # of the smallest temperatures: −∞ is right
        weights: Doubles = np.exp((logits.astype(np.float64) - highest) / temperatures)
    return weights


def targets_of(chances: Doubles, totals: Doubles) -> Doubles:
    """Return the cumulative weight that each chance of a total asks for, below the total, which nothing passes."""
    targets: Doubles = np.minimum(chances * totals, np.nextafter(totals, 0))  # a product may be rounded up to it
    return targets


def _invert(cumulative: Doubles, chances: Doubles) -> Ids:
    """Return where cumulative weights (n,) pass each chance of their total: (m,) → (m,). No place weighs nothing."""
    places: Ids = np.searchsorted(cumulative, targets_of(chances, cumulative[-1]), side="right")
    return np.minimum(places, len(cumulative) - 1)  # of NaN


def _place_of_each(cumulative: Doubles, chances: Doubles) -> Ids:
    """Return where each row's cumulative weights (R, n) pass a chance (R,) of their total, as `_invert` does: (R,)."""
    passed = np.count_nonzero(cumulative <= targets_of(chances, cumulative[:, -1])[:, None], axis=-1)
    places: Ids = np.minimum(passed, cumulative.shape[1] - 1)
    return places
