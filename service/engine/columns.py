"""A vocabulary laid out in columns, so that its likeliest tokens are found without sorting it.

A row of logits (V,) is read as a table of at most `DEPTH` lines, width (V / DEPTH, rounded up) tokens each, the last
line perhaps shorter: token id = line · width + column. The maximum or sum of every column is one pass of vector
instructions along the lines. Letters: R rows, V vocab_size, W columns.

Every function does the same arithmetic in the same order for a row alone and for a row among others, so their results
are the same to the last bit; NumPy's own sums along the last axis would be, its sums in another type are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from service.engine.arrays import Doubles, Floats, Ids

DEPTH = 64  # a pass costs the same for 16 to 64, and what is left to look at is a 64th
PIECE_ROWS = 4  # 4 × 50k logits and as many weights lie in a core's second-level cache


def width_of(vocab_size: int) -> int:
    """Return the number of columns."""
    return -(-vocab_size // DEPTH)


def column_maxima(values: Floats) -> Floats:
    """Return the maximum of each column: (…, V) → (…, W)."""
    lines, rest = _lines(values)
    maxima: Floats = lines.max(axis=-2)
    of_rest = maxima[..., : rest.shape[-1]]
    np.maximum(of_rest, rest, out=of_rest)
    return maxima


def column_sums(values: Floats) -> Doubles:
    """Return the sum of each column: (…, V) → (…, W). Columns are short enough to be added as float32."""
    lines, rest = _lines(values)
    sums: Floats = lines.sum(axis=-2)
    sums[..., : rest.shape[-1]] += rest
    return sums.astype(np.float64)


def _lines(values: Floats) -> tuple[Floats, Floats]:
    """Return the full lines (…, V // W, W) and the rest of the last (…, V % W), as views."""
    vocab_size = values.shape[-1]
    width = width_of(vocab_size)
    full = vocab_size // width
    return values[..., : full * width].reshape(*values.shape[:-1], full, width), values[..., full * width :]


def pieces(rows: int, size: int = PIECE_ROWS) -> Iterator[slice]:
    """Cut rows into pieces, of which each fits the core's cache together with as many results."""
    return (slice(start, min(start + size, rows)) for start in range(0, rows, size))


def likeliest(logits: Floats, maxima: Floats, counts: Sequence[int]) -> tuple[Floats, Ids]:
    """Return each row's likeliest tokens, best first, ties by id: logits and ids, (R, most), most = max(counts).

    Row r has counts[r] of them, counts[r] ≤ V; behind them, and where fewer are possible (logit > −∞), logits are −∞.
    `maxima` are the columns' (R, W).
    """
    # As many columns have maxima at least so high, hence as many tokens are: no other can be among the likeliest.
    thresholds = [_kth(row, own, count) for row, own, count in zip(logits, maxima, counts, strict=True)]
    floors = np.maximum(np.array(thresholds), np.finfo(np.float32).min)[:, None]
    rows, ids = np.divmod(np.flatnonzero(logits >= floors), logits.shape[1])  # of all that pass, (passed,)
    values = logits[rows, ids]
    order = np.lexsort((-values, rows))  # row by row; stable, so that ids ascend among equals
    values, ids = np.append(values[order], np.float32(-np.inf)), np.append(ids[order], 0)
    starts, ends = np.searchsorted(rows, np.arange(len(logits))), np.searchsorted(rows, np.arange(1, len(logits) + 1))
    ranks = np.arange(max(counts))
    places = starts[:, None] + ranks  # (R, most)
    is_there = (ranks < np.array(counts)[:, None]) & (places < ends[:, None])
    places = np.where(is_there, places, len(order))
    return values[places], ids[places]


def _kth(logits: Floats, maxima: Floats, count: int) -> np.float32:
    """Return what at least `count` of a row's logits (V,) reach: the count-th largest maximum, else logit."""
    if not count:
        return np.float32(np.inf)
    return kth(maxima if count <= len(maxima) else logits, count)


def kth(values: Floats, count: int) -> np.float32:
    """Return the count-th largest of values (n,), 1 ≤ count ≤ n; what is no number counts as −∞."""
    place = len(values) - count
    among = np.partition(values, place)
    if np.isnan(among[place:]).any():
        among = np.partition(np.where(np.isnan(values), np.float32(-np.inf), values), place)
    found: np.float32 = among[place]
    return found
