"""Drafts: what a sequence may go on with, looked up in what it has already.

Where its last tokens stood before, in its source, prompt or output, what followed them there is likely to follow again
(prompt lookup decoding, Saxena 2023; "Inference with Reference", Yang et al. 2023). A step then computes, beside the
newest token, a few of those in rows of their own, and as many tokens are taken as were guessed right, and one more.
Every row is computed and chosen from as in a step of its own, the drawn ones with the generator as it would be then,
so the output is the same to the last bit.

A row costs time, so a draft is as long as it pays: see `Costs`. How often looking up is right is known for each
sequence, as what is found is held against what comes even if it was not computed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence

import numpy as np

MATCHES = (3, 2)  # tokens at the end that must have been there before; the first number that finds something counts
MAX_DRAFT_TOKENS = 10  # tokens of a draft
MAX_DRAFT_ROWS = 4  # of a step that has drafts beside them: with more, each row's share of what all cost alike is small
LEAST_STEP_S = 0.002  # a step that is shorter is mostly what goes on around it, and drafts add to that
COST = 0.1  # of a drafted token, for what a step without drafts takes, until it is known
COST_RATE, FORGETTING = 0.1, 0.002  # how fast it is learnt, and of what is known how much is forgotten in a step
MARGIN = 1.3  # by which a drafted token must pay
PRIOR, RATE = 0.5, 0.15  # of the chance that a token is guessed right: at first, and how fast it is learnt
MAX_CHANCE = 0.99
TOKEN_BYTES = np.dtype(np.int32).itemsize


class Lookup:
    """What one sequence has, to look things up in it, and how often what was found was right."""

    def __init__(self, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> None:
        """`output_ids` is a list that its owner appends to."""
        self._prompt_ids, self._output_ids = prompt_ids, output_ids
        self._chances = dict.fromkeys(MATCHES, PRIOR)  # by the number of tokens that were there before
        self._matched, self._guessed = MATCHES[0], list[int]()  # for what comes behind what is known
        self._known = bytearray()  # all ids so far, as a search in bytes takes a millionth of a second per 1,000

    def draft(self, most: int, least: float) -> list[int]:
        """Return up to `most` tokens that may come next, each with a chance of at least `least` if all before do."""
        self._learn()
        self._matched, self._guessed = self._look_up()
        return self._guessed[: min(most, worthwhile(self._chances[self._matched], least))]

    def _learn(self) -> None:
        """Take the ids that are new, and hold against them what was guessed."""
        if not self._known:
            self._known += np.array(self._prompt_ids, np.int32).tobytes()
        new = self._output_ids[len(self._known) // TOKEN_BYTES - len(self._prompt_ids) :]
        for guess, token in zip(self._guessed, new, strict=False):
            chance = self._chances[self._matched]
            self._chances[self._matched] = min(MAX_CHANCE, chance + RATE * ((guess == token) - chance))
            if guess != token:
                break
        for token in new:
            self._known += token.to_bytes(TOKEN_BYTES, sys.byteorder)

    def _look_up(self) -> tuple[int, list[int]]:
        """Return how many of the last tokens were there before, and `MAX_DRAFT_TOKENS` that followed the last time.

        Where that comes to the end it goes on with itself.
        """
        for length in MATCHES:
            size = length * TOKEN_BYTES
            if size < len(self._known) and (place := self._last_place_of(self._known[-size:])) is not None:
                found = np.frombuffer(self._known[place : place + MAX_DRAFT_TOKENS * TOKEN_BYTES], np.int32).tolist()
                return length, [found[i % len(found)] for i in range(MAX_DRAFT_TOKENS)]
        return MATCHES[0], []

    def _last_place_of(self, ids: bytearray) -> int | None:
        """Return where what last followed some ids begins; there must be something before the end."""
        end = len(self._known) - TOKEN_BYTES
        while (place := self._known.rfind(ids, 0, end)) >= 0:
            if place % TOKEN_BYTES == 0:
                return place + len(ids)
            end = place + len(ids) - 1  # between two numbers
        return None


def worthwhile(chance: float, least: float) -> int:
    """Return how many tokens, each right with a chance of its own, are all right with at least another."""
    return int(math.log(least) / math.log(chance)) if least <= chance else 0


class Costs:
    """What steps have taken with drafts and without, by their rows: from that what a drafted token costs.

    With GPT-2, whose weights are read whatever there is to do, that is a twentieth of a step.
    """

    def __init__(self) -> None:
        self._plain: dict[int, float] = {}  # seconds of a step without drafts
        self._of_token: dict[int, float] = {}  # drafted, for what such a step takes

    def took(self, rows: int, drafted: int, seconds: float) -> None:
        """Be told of a step of so many rows, drafted tokens not counted."""
        plain, cost = self._plain.get(rows), self._cost(rows)
        if not drafted:
            self._plain[rows] = seconds if plain is None else plain + COST_RATE * (min(seconds, 2 * plain) - plain)
            self._of_token[rows] = cost + FORGETTING * (COST - cost)  # so that it is tried again
        elif plain is not None:
            found = min(1.0, max(0.0, (seconds / plain - 1) / drafted))
            self._of_token[rows] = cost + COST_RATE * (found - cost)

    def may_pay(self, rows: int) -> bool:
        """Tell whether steps of so many rows are known to be long enough for drafts."""
        return self._plain.get(rows, 0.0) > LEAST_STEP_S

    def least_chance(self, rows: int) -> float:
        """Return how likely a drafted token must be right to pay, beside so many rows.

        These bring a token each, and a drafted one its chance: it pays if as much of them would take longer.
        """
        return min(1.0, MARGIN * rows * self._cost(rows))

    def _cost(self, rows: int) -> float:
        return self._of_token.get(rows, COST)
