"""Changing logits before a token is chosen, as rows' constraints ask. Only a row's own few entries are touched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from service.engine.arrays import Floats, Ids
from service.engine.constraints import Constraints, ConstraintState
from service.engine.grammar import Bits

Entries = tuple[Ids | slice, Floats]  # of one row: ids, and their logits


@contextmanager
def adjusted(
    logits: Floats, states: Mapping[int, ConstraintState], totals: Mapping[int, np.float32] | None = None
) -> Iterator[Floats]:
    """Change the logits of some rows in place, and put back what was there in the end: cheaper than a copy of them all.

    `logits` are (rows, vocab_size), `states` those of the rows to change, by place. `totals` are the logarithms of
    rows' sums of exponentials: where they are given log probabilities are changed.
    """
    before: list[tuple[int, list[Entries]]] = []
    try:
        for place, row in states.items():
            entries: list[Entries] = []
            before.append((place, entries))
            _adjust_row(logits[place], row, np.float32(0) if totals is None else totals[place], entries)
        yield logits
    finally:  # who fails must not spoil the logits for those who are tried again without it
        for place, entries in before:
            for ids, values in reversed(entries):
                logits[place, ids] = values


def _adjust_row(logits: Floats, row: ConstraintState, total: np.float32, before: list[Entries]) -> None:
    """Change one row's logits (vocab_size,); add the entries that were there to `before`, in order of their change."""
    constraints = row.constraints
    if constraints.logit_bias:
        ids, bias = constraints.bias
        values = logits[ids]
        before.append((ids, values))
        logits[ids] = values + bias
    if constraints.counts_tokens:
        ids, counts = row.counts()
        values = logits[ids]
        before.append((ids, values))
        logits[ids] = _penalized(values - total, counts, constraints) + total
    allowed = row.allowed()
    if allowed is not None:
        before.append(_restrict(logits, allowed))
        return
    ids = row.banned()
    if len(ids):
        before.append((ids, logits[ids]))
        logits[ids] = -np.inf


def _restrict(logits: Floats, allowed: Bits) -> Entries:
    """Leave only the logits of what is allowed; return the entries that were there.

    Few entries are quick to pick out of a row, and many are not, be they those that stay or those that go.
    """
    if 2 * np.count_nonzero(allowed) > len(allowed):
        ids = np.flatnonzero(~allowed)
        values = logits[ids]
        logits[ids] = -np.inf
        return ids, values
    ids, values = np.flatnonzero(allowed), logits.copy()
    logits.fill(-np.inf)
    logits[ids] = values[ids]
    return slice(None), values


def _penalized(values: Floats, counts: Ids, constraints: Constraints) -> Floats:
    """Return the logits of the ids that prompt or output has, (ids,); `counts` are the output's alone."""
    if constraints.repetition_penalty != 1.0:  # Keskar et al. 2019: prompt and output count
        penalty = np.float32(constraints.repetition_penalty)
        values = np.where(values > 0, values / penalty, values * penalty)
    if constraints.presence_penalty or constraints.frequency_penalty:  # OpenAI: the output alone counts
        values = values - (constraints.presence_penalty * (counts > 0) + constraints.frequency_penalty * counts)
    return values.astype(np.float32, copy=False)
