"""The likeliest continuations of searched rows, as their constraints allow them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from service.engine.arrays import Array, Floats, take
from service.engine.constraints import ConstraintState
from service.engine.logits_processors import adjusted
from service.engine.passes import NUMPY, Passes

# Logits (rows, V), count → log probabilities and ids, (rows, count) each, best first.
Likeliest = Callable[[Floats, int], tuple[Array, Array]]


def likeliest_allowed(
    logits: Floats,
    states: Mapping[int, ConstraintState],
    count: int,
    likeliest: Likeliest,
    passes: Passes = NUMPY,
) -> tuple[Array, Array]:
    """Return what `likeliest` does, with the constraints of some rows; those of the others cost them nothing.

    Log probabilities are changed, not logits, as `transformers` does: what may not come takes its share with it, unless
    `renormalize` gives it to the rest. The logits are left as they were.
    """
    if not states:
        return likeliest(logits, count)
    totals = _totals(logits, list(states), passes)
    with adjusted(logits, states, totals) as changed:
        log_probabilities, ids = likeliest(changed, count)
        for place, row in states.items():
            if not row.constraints.renormalize:
                shares = changed[place, ids[place]] - totals[place]
                # Where there are fewer tokens than asked for, ids tell of none.
                log_probabilities[place] = np.where(np.isneginf(log_probabilities[place]), -np.inf, shares)
    for place, row in states.items():
        if (token := row.forced()) is not None:
            log_probabilities[place], ids[place] = _certain(token, log_probabilities.shape[1])
        elif row.is_stuck:
            log_probabilities[place] = -np.inf
    return log_probabilities, ids


def _totals(logits: Floats, places: list[int], passes: Passes) -> dict[int, np.float32]:
    """Return the logarithms of the sums of exponentials of some rows."""
    totals = passes.log_totals(take(logits, places))[:, 0].astype(np.float32)
    return dict(zip(places, totals, strict=True))


def _certain(token: int, count: int) -> tuple[Array, Array]:
    """Return the continuations of a row of which one must come, (count,) each."""
    log_probabilities, ids = np.full(count, -np.inf, np.float32), np.zeros(count, np.int64)
    log_probabilities[0], ids[0] = 0, token
    return log_probabilities, ids
