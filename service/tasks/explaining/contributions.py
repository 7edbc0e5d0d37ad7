"""What each token adds to a model's answer, found by asking it about texts that lack some of them.

A text without a token is the text with that token taken out, nothing in its place. Deletion curves chose the method:
service/tasks/README.md has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from service.engine.arrays import Array
from service.engine.inputs import TextInput

ORDERS = 10  # in which tokens are taken away; half of them are the others backwards
SEED = 20  # the same text has the same contributions


@dataclass(frozen=True)
class Trial:
    """Texts to be asked about, and how their answers become contributions."""

    rows: list[TextInput]
    orders: list[Array]  # places in the order in which they are taken away; none: each is left out alone
    places: list[int]  # of the tokens that can be taken away


def leaving_one_out(text: TextInput, places: Sequence[int]) -> Trial:
    """Return the whole text, none of it, and all that lack one token."""
    rows = [_without(text, {place}) for place in places]
    return Trial([text, _without(text, set(places)), *rows], [], list(places))


def orders_of(text: TextInput, places: Sequence[int], most: int) -> Trial:
    """Return texts that lose token after token, in orders drawn by chance, each once more backwards.

    That estimates Shapley's values (Castro et al. 2009; backwards, Mitchell et al. 2022). `most` bounds the rows; the
    whole text and none of it are asked once.
    """
    draw = np.random.default_rng(SEED)
    pairs = max(1, min(ORDERS // 2, most // max(1, 2 * len(places))))
    rows, orders = [text, _without(text, set(places))], []
    for _ in range(pairs):
        order = draw.permutation(len(places))
        for each in (order, order[::-1]):
            orders.append(each)
            taken: set[int] = set()
            for place in each[:-1]:
                taken.add(places[place])
                rows.append(_without(text, taken))
    return Trial(rows, orders, list(places))


def contributions(trial: Trial, answers: Array) -> Array:
    """Return what each place adds, of the answers to all rows (N,)."""
    whole, none, rest = answers[0], answers[1], answers[2:]
    if not trial.orders:
        return np.asarray(whole - rest)
    total = np.zeros(len(trial.places))
    steps = len(trial.places) - 1
    for number, order in enumerate(trial.orders):
        path = np.concatenate([[whole], rest[number * steps : (number + 1) * steps], [none]])
        total[order] += path[:-1] - path[1:]
    return np.asarray(total / len(trial.orders))


def _without(text: TextInput, places: set[int]) -> TextInput:
    kept = [place for place in range(len(text.ids)) if place not in places]
    return TextInput([text.ids[place] for place in kept], [text.segment_ids[place] for place in kept])
