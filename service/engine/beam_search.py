"""Beam search as one member of the running batch: its rows are slots, and a step says which slot continues which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class BeamParams:
    """How one sequence is searched, and how many of its hypotheses are wanted."""

    max_tokens: int
    beam_size: int
    length_penalty: float = 1.0
    n_best: int = 1


@dataclass(frozen=True)
class Hypothesis:
    """One finished decoding: its ids without the end token, and Σ log p / length^length_penalty."""

    ids: list[int]
    score: float
    finish_reason: str = "stop"


@dataclass(frozen=True)
class Candidates:
    """The likeliest continuations of each row, best first: log probabilities and ids, (rows, candidates_of(beam_size)).

    So many are enough for beam_size to live on if the others all end.
    """

    log_probabilities: NDArray[np.float32]
    ids: NDArray[np.int64]


def candidates_of(beam_size: int) -> int:
    """Return how many continuations of each row a search looks at."""
    return 2 * beam_size


class BeamSearch:
    """The live beams and the finished hypotheses of one sequence (the rules of `model.decoding.beam_search`)."""

    def __init__(self, params: BeamParams, end: int) -> None:
        self.params = params
        self._end = end
        self.beams: list[list[int]] = [[]]
        self._totals = np.zeros(1)
        self._finished: list[Hypothesis] = []
        self._agreed = 0

    @property
    def is_finished(self) -> bool:
        """Whether the search has its result."""
        return not self.beams

    def advance(self, continuations: Candidates) -> list[int]:
        """Take one step; return, for each new beam, the row it continues. No beam is left when the search is over."""
        size = self.params.beam_size
        totals = self._totals[:, None] + continuations.log_probabilities
        order = np.argsort(-totals.ravel(), kind="stable")[: candidates_of(size)]
        length = len(self.beams[0]) + 1
        parents: list[int] = []
        beams: list[list[int]] = []
        kept: list[float] = []
        for rank, place in enumerate(order.tolist()):
            row, column = divmod(place, totals.shape[1])
            token, total = int(continuations.ids[row, column]), float(totals[row, column])
            if token != self._end and len(beams) < size:
                parents.append(row)
                beams.append([*self.beams[row], token])
                kept.append(total)
            elif token == self._end and rank < size:
                self._finish(self.beams[row], total, length, "stop")
        if len(self._finished) < size and length == self.params.max_tokens:
            for ids, total in zip(beams, kept, strict=True):
                self._finish(ids, total, length, "length")
        if length == self.params.max_tokens or self._is_decided(max(kept, default=-np.inf), length):
            parents, beams, kept = [], [], []
        self.beams, self._totals = beams, np.array(kept)
        return parents

    def newly_agreed(self) -> list[int]:
        """Return the tokens that by now begin every live beam and every finished hypothesis, beyond those returned.

        Whatever wins begins with them. When the search is over they are the rest of the best hypothesis.
        """
        rivals = [*self.beams, *(hypothesis.ids for hypothesis in self._finished)]
        if self.is_finished:
            rivals = [self.hypotheses()[0].ids]
        first, shortest = self._agreed, min(map(len, rivals))
        while self._agreed < shortest and all(ids[self._agreed] == rivals[0][self._agreed] for ids in rivals):
            self._agreed += 1
        return rivals[0][first : self._agreed]

    def hypotheses(self) -> list[Hypothesis]:
        """Return the finished hypotheses, best first, n_best at most."""
        return sorted(self._finished, key=lambda hypothesis: -hypothesis.score)[: self.params.n_best]

    def _is_decided(self, best_total: float, length: int) -> bool:
        """Whether beam_size have finished, or no live beam can come among the n_best any more.

        A live beam's score is highest if it ends with certainty, at the next step or, as log p ≤ 0, at the very last.
        """
        best = self.hypotheses()
        if len(self._finished) >= self.params.beam_size:
            return True
        if len(best) < self.params.n_best:
            return False
        lengths = (length + 1, self.params.max_tokens)
        return best[-1].score >= max(float(best_total / at**self.params.length_penalty) for at in lengths)

    def _finish(self, ids: list[int], total: float, length: int, reason: str) -> None:
        self._finished.append(Hypothesis(ids, total / length**self.params.length_penalty, reason))
