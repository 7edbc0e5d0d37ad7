"""Log probabilities of tokens, and of the likeliest beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from service.engine.arrays import Floats, Ids
from service.engine.columns import pieces
from service.engine.passes import NUMPY, Passes

SCORED_ROWS = 32  # looked at together; small arrays are made for each of a prompt's pieces


class SampledToken(NamedTuple):
    """A chosen token; with `logprobs` asked for, its natural-log probability and the likeliest alternatives.

    `end`: "stop" if the grammar is complete with this token; "grammar" if nothing may follow and it does not count.
    """

    id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    end: Literal["stop", "grammar"] | None = None


def scored(logits: Floats, tokens: Ids, alternatives: Sequence[int], passes: Passes = NUMPY) -> list[SampledToken]:
    """Return a token for each row with its log probability, and so many of the likeliest: logits (R, V), ids (R,).

    Tokens that are impossible are none of the likeliest, so there may be fewer.
    """
    return [
        token
        for piece in pieces(len(logits), SCORED_ROWS)
        for token in _scored_piece(logits[piece], tokens[piece], alternatives[piece], passes)
    ]


def _scored_piece(logits: Floats, tokens: Ids, alternatives: Sequence[int], passes: Passes) -> list[SampledToken]:
    totals = passes.log_totals(logits)  # (R, 1)
    chosen = (logits[np.arange(len(tokens)), tokens, None] - totals)[:, 0].tolist()
    best, ids = passes.likeliest(logits, [min(count, logits.shape[1]) for count in alternatives])
    best_of = best - totals
    tops = [tuple(zip(*row, strict=True)) for row in zip(ids.tolist(), best_of.tolist(), strict=True)]
    if np.isneginf(best_of).any():
        tops = [tuple(pair for pair in top if pair[1] > -np.inf) for top in tops]
    return [SampledToken(*each) for each in zip(tokens.tolist(), chosen, tops, strict=True)]
