"""Drawing from a row's likeliest tokens alone, where they decide: all that comes back of logits that lie on a device.

What they weigh together with what all tokens weigh tells whether a draw falls among them. With top-p it does when they
hold as much as it asks for; without a filter it does as often as their share of all is. Otherwise the row's logits are
needed whole, without these tokens where the draw has fallen among the others: so every token has its own probability.

Letters: R rows, K tokens of the shortlist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from service.engine.arrays import Doubles, Floats, Ids
from service.engine.drawing import kept_by_filters
from service.engine.logprobs import SampledToken
from service.engine.passes import targets_of
from service.engine.sampling_params import Row, SamplingParams

SHORTLIST = 256  # tokens; they hold nearly all of what a trained model thinks likely
SMALLEST = float(np.finfo(np.float32).tiny)  # temperature that the device divides by
ROUNDING = 1e-6
FEW = 64  # are enough for most top-k, and found sooner


@dataclass(frozen=True)
class Shortlist:
    """The likeliest tokens of each row, (R, K) logits and ids in descending order, and what all tokens weigh, (R,).

    A token's weight is exp((logit − highest) / temperature); `plain_masses` are those of temperature 1.
    """

    best: Floats
    ids: Ids
    masses: Floats
    plain_masses: Floats
    is_whole: bool  # there are no other tokens


@dataclass
class Drawn:
    """Tokens by place, places whose draw fell behind the shortlist, and those of which it does not tell."""

    tokens: dict[int, SampledToken] = field(default_factory=dict)
    behind: list[int] = field(default_factory=list)
    undecided: list[int] = field(default_factory=list)


def length_for(params: SamplingParams) -> int | None:
    """Return how many tokens a shortlist for such a row should have, of a few numbers; None where it cannot decide.

    It depends on the row alone, as a draw does on its shortlist.
    """
    alternatives = params.logprobs or 0
    if params.top_k > SHORTLIST or alternatives > SHORTLIST:
        return None
    few = max(params.top_k, alternatives) <= FEW and (params.top_k > 0 or params.temperature == 0)
    return FEW if few else SHORTLIST


def temperature_of(params: SamplingParams) -> float:
    """Return the temperature to weigh tokens at; a greedy row's weights decide nothing."""
    return max(params.temperature, SMALLEST) if params.temperature else 1.0


def draw_from(shortlist: Shortlist, rows: Sequence[Row]) -> Drawn:
    """Draw a token for each row that its shortlist decides for; all rows' arithmetic is done together."""
    drawn = Drawn()
    length = shortlist.ids.shape[1]
    ranks, is_decided = _ranks(shortlist, rows)
    for place, (row, rank) in enumerate(zip(rows, ranks.tolist(), strict=True)):
        if not is_decided[place]:
            drawn.undecided.append(place)
        elif rank == length:
            drawn.behind.append(place)
        elif row.params.logprobs is None:
            drawn.tokens[place] = SampledToken(int(shortlist.ids[place, rank]))
        else:
            drawn.tokens[place] = _scored(shortlist, place, rank, row.params.logprobs)
    return drawn


def _ranks(shortlist: Shortlist, rows: Sequence[Row]) -> tuple[Ids, NDArray[np.bool_]]:
    """Return which token of its shortlist each row draws, their number for one behind them, and whether that counts."""
    temperatures = np.array([temperature_of(row.params) for row in rows])[:, None]
    has_top_k = np.array([row.params.top_k > 0 for row in rows])
    top_p, min_p = (np.array([getattr(row.params, name) for row in rows]) for name in ("top_p", "min_p"))
    best = shortlist.best.astype(np.float64)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):  # of the smallest temperatures, of NaN
        weights: Doubles = np.exp((best - best[:, :1]) / temperatures)  # (R, K)
    among = np.cumsum(weights, axis=-1)
    masses = among[:, -1]
    if not shortlist.is_whole:  # the device adds up in another order, so a little more is none
        masses = np.where(shortlist.masses > masses * (1 + ROUNDING), shortlist.masses, masses)
    kept: NDArray[np.bool_] = (among - weights < (top_p * masses)[:, None]) & (weights >= min_p[:, None])
    if has_top_k.any():
        places = np.flatnonzero(has_top_k)
        kept[places] = kept_by_filters(weights[places], [rows[place] for place in places.tolist()])
    is_free = ~has_top_k & (top_p >= 1) & (min_p <= 0)
    kept[is_free] = True
    is_greedy = np.array([row.params.temperature == 0 for row in rows])
    # Where a filter keeps the last one, it perhaps keeps others behind it.
    is_decided = is_greedy | is_free | has_top_k | ~kept[:, -1] | shortlist.is_whole
    is_decided &= np.isfinite(best[:, 0]) & np.isfinite(masses)  # of NaN it says nothing
    cumulative = np.cumsum(weights * kept, axis=-1)
    totals = np.where(is_free, masses, cumulative[:, -1])
    chances = np.array([0.0 if greedy else row.rng.random() for row, greedy in zip(rows, is_greedy, strict=True)])
    ranks: Ids = (cumulative <= targets_of(chances, totals)[:, None]).sum(axis=-1)
    ranks[is_greedy] = 0
    return ranks, is_decided


def _scored(shortlist: Shortlist, place: int, rank: int, alternatives: int) -> SampledToken:
    ids, best = shortlist.ids[place], shortlist.best[place].astype(np.float64)
    log_probabilities = (best - best[0] - np.log(float(shortlist.plain_masses[place]))).tolist()
    top = list(zip(ids[:alternatives].tolist(), log_probabilities[:alternatives], strict=True))
    return SampledToken(int(ids[rank]), log_probabilities[rank], tuple(each for each in top if each[1] > -np.inf))
