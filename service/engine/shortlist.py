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

from service.engine.columns import Doubles, Floats
from service.engine.drawing import kept_by_filters
from service.engine.logprobs import SampledToken
from service.engine.sampling_params import Ids, Row, SamplingParams

SHORTLIST = 256  # tokens; they hold nearly all of what a trained model thinks likely


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


def may_decide(params: SamplingParams) -> bool:
    """Whether a shortlist may decide for such a row."""
    return params.top_k <= SHORTLIST and (params.logprobs is None or params.logprobs <= SHORTLIST)


def temperature_of(params: SamplingParams) -> float:
    """Return the temperature to weigh tokens at; a greedy row's weights decide nothing."""
    return params.temperature or 1.0


def draw_from(shortlist: Shortlist, rows: Sequence[Row]) -> Drawn:
    """Draw a token for each row that its shortlist decides for."""
    drawn = Drawn()
    for place, row in enumerate(rows):
        rank = _rank(shortlist, place, row)
        if rank is None:
            drawn.undecided.append(place)
        elif rank == len(shortlist.ids[place]):
            drawn.behind.append(place)
        else:
            drawn.tokens[place] = _token(shortlist, place, rank, row.params.logprobs)
    return drawn


def _rank(shortlist: Shortlist, place: int, row: Row) -> int | None:
    """Return which token of the shortlist is drawn, their number for one of the others, None if it does not say."""
    params = row.params
    if params.temperature == 0:
        return 0
    best = shortlist.best[place].astype(np.float64)
    with np.errstate(over="ignore", under="ignore"):
        weights: Doubles = np.exp((best - best[0]) / params.temperature)
    if params.top_k:
        return _invert(weights * kept_by_filters(weights[None], [row])[0], row)
    mass = float(weights.sum()) if shortlist.is_whole else max(float(shortlist.masses[place]), float(weights.sum()))
    if params.top_p >= 1 and not params.min_p:
        return _invert(weights, row, mass)
    before = np.cumsum(weights) - weights
    kept: NDArray[np.bool_] = (before < params.top_p * mass) & (weights >= params.min_p)
    if kept[-1] and not shortlist.is_whole:  # and perhaps others behind it
        return None
    return _invert(weights * kept, row)


def _invert(weights: Doubles, row: Row, mass: float | None = None) -> int:
    """Return where the cumulative weights pass a chance of their sum; of a larger mass perhaps behind all of them."""
    cumulative = np.cumsum(weights)
    total = cumulative[-1] if mass is None else mass
    # A product may be rounded up to the total, which nothing passes.
    target = min(row.rng.random() * total, np.nextafter(total, 0))
    return int(np.searchsorted(cumulative, target, side="right"))


def _token(shortlist: Shortlist, place: int, rank: int, alternatives: int | None) -> SampledToken:
    ids = shortlist.ids[place]
    if alternatives is None:
        return SampledToken(int(ids[rank]))
    best = shortlist.best[place].astype(np.float64)
    log_probabilities = (best - best[0] - np.log(float(shortlist.plain_masses[place]))).tolist()
    top = list(zip(ids[:alternatives].tolist(), log_probabilities[:alternatives], strict=True))
    return SampledToken(int(ids[rank]), log_probabilities[rank], tuple(each for each in top if each[1] > -np.inf))
