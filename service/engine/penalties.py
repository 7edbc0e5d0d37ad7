"""Changing logits before a token is chosen: penalties, bias, `min_tokens`. Only a row's own few entries are touched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from service.engine.sampling_params import Ids, Row

Logits = NDArray[np.float32]  # (rows, vocab_size)
Entries = tuple[Ids, NDArray[np.float32]]  # of one row: ids, and their logits


@contextmanager
def adjusted(logits: Logits, rows: Sequence[Row]) -> Iterator[Logits]:
    """Change the rows' logits in place, and put back what was there in the end: cheaper than a copy of them all."""
    before: list[tuple[int, list[Entries]]] = []
    try:
        for place, row in enumerate(rows):
            before.append((place, _adjust_row(logits[place], row)))
        yield logits
    finally:  # who fails must not spoil the logits for those who are tried again without it
        for place, entries in before:
            for ids, values in reversed(entries):
                logits[place, ids] = values


def _adjust_row(logits: NDArray[np.float32], row: Row) -> list[Entries]:
    """Change one row's logits (vocab_size,); return the entries that were there, in order of their change."""
    params, before = row.params, []
    if params.counts_tokens:
        ids, counts = row.counts()
        before.append((ids, values := logits[ids]))
        logits[ids] = _penalized(values, counts, row)
    if params.logit_bias:
        ids, bias = row.bias
        before.append((ids, values := logits[ids]))
        logits[ids] = values + bias
    if len(row.output_ids) < params.min_tokens:
        before.append((row.stop_ids, logits[row.stop_ids]))
        logits[row.stop_ids] = -np.inf
    # A mask of what a grammar allows belongs here: it comes before every filter, and after nothing that could undo it.
    return before


def _penalized(values: NDArray[np.float32], counts: Ids, row: Row) -> NDArray[np.float32]:
    """Return the logits of the ids that prompt or output has, (ids,); `counts` are the output's alone."""
    params = row.params
    if params.repetition_penalty != 1.0:  # Keskar et al. 2019: prompt and output count
        penalty = np.float32(params.repetition_penalty)
        values = np.where(values > 0, values / penalty, values * penalty)
    if params.presence_penalty or params.frequency_penalty:  # OpenAI: the output alone counts
        values = values - (params.presence_penalty * (counts > 0) + params.frequency_penalty * counts)
    return values.astype(np.float32, copy=False)
