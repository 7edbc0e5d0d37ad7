"""What looks at every token of a vocabulary, row by row: in NumPy, or by operators of our own (`native/vocabulary.py`).

Both give the same, except that they round exponentials in their own ways: where a draw's chance is that near to the
border of two tokens, it may fall to the other.

Letters: R rows, V vocab_size, W columns (see `columns.py`), T rounds, K the largest of some counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from service.engine.arrays import Doubles, Floats, Ids
from service.engine.columns import column_maxima, column_sums, kth, likeliest, pieces

UNDECIDED, NO_NUMBERS = -1, -2  # instead of a drawn token: all rounds have failed; a logit is no number, or infinite
PIECE_TOKENS = 65536  # of several rows, which lie in a core's second-level cache with as many weights


class Asked(NamedTuple):
    """What rows ask of draws by weights, and the chances of their rounds, from 0 to below 1."""

    factors: Floats  # (R,): 1 / temperature
    top_k: Ids  # (R,): 0 for no filter
    top_p: Doubles  # (R,)
    min_p: Floats  # (R,)
    chances: Doubles  # (R, T, 2): for a column, and for one of its tokens

    def of(self, some: slice) -> Asked:
        """Return what some of the rows ask."""
        of_rows = (self.factors[some], self.top_k[some], self.top_p[some], self.min_p[some])
        return Asked(*of_rows, self.chances[some])


class Passes(Protocol):
    """What is found of logits (R, V); of each row by that row alone."""

    def draw(self, logits: Floats, asked: Asked) -> Ids:
        """Draw by the weights of the tokens that top-k keeps: a column by their sum, then one of its tokens.

        With top-p again, among the likelier tokens, while it is outside of the smallest set that reaches it (the pivots
        of "Sorting-Free GPU Kernels for LLM Sampling", FlashInfer 2025); most draws need one or two rounds. Returns ids
        (R,), or `UNDECIDED` or `NO_NUMBERS`.
        """

    def log_totals(self, logits: Floats) -> Doubles:
        """Return the logarithm of the sum of all exponentials, (R, 1)."""

    def likeliest(self, logits: Floats, counts: Sequence[int]) -> tuple[Floats, Ids]:
        """Return each row's likeliest tokens, best first, ties by id: logits and ids, (R, K), K = max(counts).

        Row r has counts[r] of them, counts[r] ≤ V; behind them, and where fewer are possible (logit > −∞), logits are
        −∞.
        """


class NumpyPasses:
    """These passes where our own operators cannot be had."""

    def draw(self, logits: Floats, asked: Asked) -> Ids:
        """Draw by weights."""
        if (asked.top_p < 1).any():  # row by row, as one row's weights fit the core's nearer cache and many do not
            return np.array([_draw_in_rounds(logits[row], asked.of(row)) for row in pieces(len(logits), 1)])
        cut = pieces(len(logits), max(1, PIECE_TOKENS // logits.shape[1]))
        return np.concatenate([_draw_once(logits[piece], asked.of(piece)) for piece in cut])

    def log_totals(self, logits: Floats) -> Doubles:
        """Return the logarithm of the sum of all exponentials."""
        return np.concatenate([_log_totals(logits[piece]) for piece in pieces(len(logits))])

    def likeliest(self, logits: Floats, counts: Sequence[int]) -> tuple[Floats, Ids]:
        """Return each row's likeliest tokens."""
        return likeliest(logits, column_maxima(logits), counts)


NUMPY = NumpyPasses()


def _log_totals(logits: Floats) -> Doubles:
    highest = logits.max(axis=-1, keepdims=True)
    weights: Floats = logits - highest
    np.exp(weights, out=weights)
    totals: Doubles = highest + np.log(column_sums(weights).sum(axis=-1, keepdims=True))
    return totals


def _draw_once(logits: Floats, asked: Asked) -> Ids:
    """Draw a token for each of some rows, without top-p: (R, V) → (R,)."""
    weights, sums, totals = _weights_and_sums(logits, asked)
    return np.where(_are_numbers(totals), _tokens_of(weights, sums, asked.chances[:, 0]), NO_NUMBERS)


def _draw_in_rounds(logits: Floats, asked: Asked) -> int:
    """Draw one token, and again among the likelier ones while it is not within top-p: (1, V) → id."""
    (weights,), (sums,), (total,) = _weights_and_sums(logits, asked)
    (top_p,), (chances,) = asked.top_p, asked.chances
    if not _are_numbers(total):
        return NO_NUMBERS
    for of_round in chances:
        token = _token_of(weights, sums, of_round)
        weights *= _are_likelier(logits[0], token)
        sums = column_sums(weights)
        if top_p >= 1 or sums.sum() < top_p * total:
            return token
    return UNDECIDED


def _are_numbers(totals: Doubles) -> NDArray[np.bool_]:
    """Tell of which rows something can be drawn: the likeliest token of each weighs 1."""
    are_numbers: NDArray[np.bool_] = np.isfinite(totals) & (totals > 0)
    return are_numbers


def _weights_and_sums(logits: Floats, asked: Asked) -> tuple[Floats, Doubles, Doubles]:
    """Return what tokens weigh that the filters but top-p keep (R, V), their columns' sums (R, W), and totals (R,).

    The totals are of the tokens that top-k keeps; top-p is a share of them. The likeliest weighs 1, all in single
    precision.
    """
    highest = logits.max(axis=-1, keepdims=True)
    cut = np.flatnonzero((asked.top_k > 0) & (asked.top_k < logits.shape[1])).tolist()
    for row in cut:
        highest[row] = np.fmax.reduce(logits[row])  # what is no number is not among the top-k
    weights: Floats = logits - highest
    with np.errstate(over="ignore"):
        weights *= asked.factors[:, None]
    np.exp(weights, out=weights)
    for row in cut:
        weights[row] = np.where(_are_top_k(logits[row], int(asked.top_k[row])), weights[row], 0)
    sums = column_sums(weights)
    totals: Doubles = sums.sum(axis=-1)
    if asked.min_p.any():
        weights *= weights >= asked.min_p[:, None]
        sums = column_sums(weights)
    return weights, sums, totals


def _tokens_of(weights: Floats, sums: Doubles, chances: Doubles) -> Ids:
    """Draw from weights (R, V), whose columns' sums are (R, W), by two chances (R, 2) each: a column, and its token."""
    columns = place_of_each(sums.cumsum(axis=-1), chances[:, 0])
    vocab_size, width = weights.shape[1], sums.shape[1]
    ids = columns[:, None] + np.arange(0, vocab_size, width)  # (R, lines), of which the last may be beyond all tokens
    own = np.take_along_axis(weights, np.minimum(ids, vocab_size - 1), axis=-1) * (ids < vocab_size)
    drawn: Ids = columns + width * place_of_each(own.cumsum(axis=-1, dtype=np.float64), chances[:, 1])
    return drawn


def _token_of(weights: Floats, sums: Doubles, chances: Doubles) -> int:
    """Do the same for one row, in half the time: (V,), (W,), (2,) → id."""
    column = _place_of(sums.cumsum(), chances[0])
    line = _place_of(weights[column :: len(sums)].astype(np.float64).cumsum(), chances[1])
    return column + len(sums) * line


def _are_top_k(logits: Floats, top_k: int) -> NDArray[np.bool_]:
    """Return which of the tokens are the top-k, ties by id: (V,) → (V,)."""
    threshold = kth(logits, top_k)
    are_top: NDArray[np.bool_] = logits >= threshold
    surplus = np.count_nonzero(are_top) - top_k
    if surplus > 0:
        are_top[np.flatnonzero(logits == threshold)[-surplus:]] = False
    return are_top


def _are_likelier(logits: Floats, token: int) -> NDArray[np.bool_]:
    """Return which tokens are likelier than this one, ties by id: (V,) → (V,)."""
    are_likelier = np.empty(len(logits), np.bool_)
    np.greater_equal(logits[:token], logits[token], out=are_likelier[:token])
    np.greater(logits[token:], logits[token], out=are_likelier[token:])
    return are_likelier


def targets_of(chances: Doubles | float, totals: Doubles) -> Doubles:
    """Return the cumulative weight that each chance of a total asks for, below the total, which nothing passes."""
    targets: Doubles = np.minimum(chances * totals, np.nextafter(totals, 0))  # a product may be rounded up to it
    return targets


def place_of_each(cumulative: Doubles, chances: Doubles) -> Ids:
    """Return where cumulative weights (R, n) pass a chance (R,) of their total: (R,). No place weighs nothing."""
    passed = np.count_nonzero(cumulative <= targets_of(chances, cumulative[:, -1])[:, None], axis=-1)
    places: Ids = np.minimum(passed, cumulative.shape[1] - 1)
    return places


def _place_of(cumulative: Doubles, chance: float) -> int:
    """Do the same for one row: (n,) → place."""
    return min(int(cumulative.searchsorted(targets_of(chance, cumulative[-1]), side="right")), len(cumulative) - 1)
