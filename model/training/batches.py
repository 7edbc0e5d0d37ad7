"""Batches of rows of similar lengths, made in another thread."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Generator, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.int64]
Item = TypeVar("Item")


def length_batches(
    lengths: Sequence[int] | Array,
    batch_tokens: int,
    rng: random.Random | None,
    most: int | None = None,
    apart: Sequence[frozenset[Hashable]] | None = None,
) -> list[list[int]]:
    """Group indices of similar length so that longest × count stays within `batch_tokens`, and count within `most`.

    Lengths are (N,) or, where each has several sides that are padded apart, (N, sides): the longest counts, and those
    that are alike in all sides lie together. With `rng` the groups differ from epoch to epoch: equal lengths are
    shuffled, and then the batches. Without it the order is by length, for evaluation. What has something in common in
    `apart` is never in one batch; those that must wait for another go into the next one that has room, so batches are
    as full as they would be without.
    """
    sides = np.atleast_2d(np.asarray(lengths, np.float64).T)
    lasting = sides.max(axis=0)
    noise = np.random.default_rng(rng.getrandbits(64)).random(len(lengths)) if rng else np.zeros(len(lengths))
    order = np.lexsort((noise, *sides[::-1], lasting))  # ascending, so a batch's last is its longest
    most = most or len(lengths)
    if apart is None:
        batches = _in_order(order, lasting, batch_tokens, most)
    else:
        batches = _kept_apart(order.tolist(), lasting, batch_tokens, most, apart)
    if rng:
        rng.shuffle(batches)
    return batches


def _in_order(order: Array, lengths: NDArray[np.float64], batch_tokens: int, most: int) -> list[list[int]]:
    """Cut an order into batches, each as full as it may be."""
    room = np.minimum(most, batch_tokens // np.maximum(1, lengths[order]))
    batches: list[list[int]] = []
    start = 0
    while start < len(order):
        others = room[start + 1 : start + max(1, int(room[start]))]
        does_fit = (
            np.arange(1, len(others) + 1) < others
        )  # up to the first that does not: room shrinks, the batch grows
        count = 1 + int(does_fit.sum())
        batches.append(order[start : start + count].tolist())
        start += count
    return batches


def _kept_apart(
    order: list[int], lengths: Sequence[int] | Array, batch_tokens: int, most: int, apart: Sequence[frozenset[Hashable]]
) -> list[list[int]]:
    """Fill batches in an order, with several open at a time: what has something in common waits for another."""
    full: list[list[int]] = []
    filling: list[tuple[list[int], set[Hashable]]] = []  # one, and as many more as there are things to keep apart
    for index in order:
        has_room = min(most, batch_tokens // max(1, lengths[index]))
        full += [batch for batch, _ in filling if len(batch) >= has_room]
        filling = [each for each in filling if len(each[0]) < has_room]
        place = next((each for each in filling if each[1].isdisjoint(apart[index])), None)
        if place is None:
            place = [], set()
            filling.append(place)
        place[0].append(index)
        place[1].update(apart[index])
    return full + [batch for batch, _ in filling]


def equal_batches(indices: Sequence[int] | Array, size: int, rng: random.Random | None) -> list[list[int]]:
    """Group indices of things of one length, `size` at a time.

    With `rng` they are shuffled, and what does not fill a batch is left out, unless nothing else is there: all batches
    of an epoch have the same shape then.
    """
    order = np.asarray(indices)
    size = max(1, size)
    if rng:
        order = np.random.default_rng(rng.getrandbits(64)).permutation(order)
        order = order[: max(size, len(order) // size * size)]
    return [order[start : start + size].tolist() for start in range(0, len(order), size)]


def prefetched(items: Iterator[Item], ahead: int) -> Generator[Item, None, None]:
    """Yield endless items that another thread makes, `ahead` of them in advance."""
    with ThreadPoolExecutor(1) as pool:
        try:
            waiting = deque(pool.submit(next, items) for _ in range(ahead))
            while True:
                yield waiting.popleft().result()
                waiting.append(pool.submit(next, items))
        finally:
            pool.shutdown(cancel_futures=True)
