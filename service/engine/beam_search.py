"""Beam search as one member of the running batch: its rows are slots, and a step says which slot continues which."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.engine.sampling import Logits, log_softmax


@dataclass(frozen=True)
class BeamParams:
    """How one sequence is searched."""

    max_tokens: int
    beam_size: int
    length_penalty: float = 1.0


@dataclass(frozen=True)
class Hypothesis:
    """One finished decoding: its ids without the end token, and Σ log p / length^length_penalty."""

    ids: list[int]
    score: float
    finish_reason: str = "stop"


@dataclass(frozen=True)
class Candidates:
    """The likeliest continuations of each row, best first: log probabilities and ids, (rows, 2·beam_size)."""

    log_probabilities: NDArray[np.float64]
    ids: NDArray[np.int64]


def candidates(logits: Logits, beam_size: int) -> Candidates:
    """Return each row's 2·beam_size likeliest tokens: enough for beam_size to live on if the others all end."""
    count = min(2 * beam_size, logits.shape[-1])
    log_probabilities = log_softmax(logits)
    ids = np.argpartition(-log_probabilities, count - 1, axis=-1)[:, :count]
    values = np.take_along_axis(log_probabilities, ids, axis=-1)
    order = np.lexsort((ids, -values))
    return Candidates(np.take_along_axis(values, order, axis=-1), np.take_along_axis(ids, order, axis=-1))


class BeamSearch:
    """The live beams and the finished hypotheses of one sequence (the rules of `model.decoding.beam_search`)."""

    def __init__(self, params: BeamParams, end: int) -> None:
        self.params = params
        self._end = end
        self.beams: list[list[int]] = [[]]
        self._totals = np.zeros(1)
        self._finished: list[Hypothesis] = []

    @property
    def is_finished(self) -> bool:
        """Whether the search has its result."""
        return not self.beams

    def advance(self, continuations: Candidates) -> list[int]:
        """Take one step; return, for each new beam, the row it continues. No beam is left when the search is over."""
        size = self.params.beam_size
        totals = self._totals[:, None] + continuations.log_probabilities
        order = np.argsort(-totals.ravel(), kind="stable")[: 2 * size]
        length = len(self.beams[0]) + 1
        parents: list[int] = []
        beams: list[list[int]] = []
        kept: list[float] = []
        for rank, place in enumerate(order):
            row, column = divmod(int(place), totals.shape[1])
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
        if len(self._finished) >= size or length == self.params.max_tokens:
            parents, beams, kept = [], [], []
        self.beams, self._totals = beams, np.array(kept)
        return parents

    def hypotheses(self) -> list[Hypothesis]:
        """Return the finished hypotheses, best first, beam_size at most."""
        return sorted(self._finished, key=lambda hypothesis: -hypothesis.score)[: self.params.beam_size]

    def _finish(self, ids: list[int], total: float, length: int, reason: str) -> None:
        self._finished.append(Hypothesis(ids, total / length**self.params.length_penalty, reason))
