"""Beam search as one member of the running batch: its rows are slots, and a step says which slot continues which."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model.package.generation import EarlyStopping
from service.engine.constraints import FREE, Constraints

# Behind the beam_size likeliest candidates a grammar is asked of so many times beam_size more, as asking takes long;
# without a grammar as many beams live on by then as may.
MAX_LOOKED_AT = 2

Completes = Callable[[int, int], bool]  # of a row and a token behind it
# Of a beam's tokens and one behind them: what the two show up to a stop text, if it is complete with the token.
EndsText = Callable[[list[int], int], Hashable | None]


@dataclass(frozen=True)
class BeamParams:
    """How one sequence is searched, and how many of its hypotheses are wanted.

    A search is over when beam_size hypotheses have finished, and, unless `early_stopping` is true, the best live beam
    scores less than each of them: at its present length, or, if it is "never", at any that it may come to.
    """

    max_tokens: int
    beam_size: int
    length_penalty: float = 1.0
    n_best: int = 1
    early_stopping: EarlyStopping = True
    stop_ids: frozenset[int] = frozenset()  # beside the model's own end
    ends_text: EndsText | None = None  # what a stop text that is complete with a token leaves, as nothing may follow
    constraints: Constraints = FREE


@dataclass(frozen=True)
class Hypothesis:
    """One finished decoding: its ids without the end token, and Σ log p / length^length_penalty."""

    ids: list[int]
    score: float
    finish_reason: Literal["stop", "length", "grammar"] = "stop"


@dataclass(frozen=True)
class Candidates:
    """The likeliest continuations of each row, best first: log probabilities and ids, (rows, candidates_of(…)).

    So many are enough for beam_size to live on if the others all end.
    """

    log_probabilities: NDArray[np.float32]
    ids: NDArray[np.int64]


def candidates_of(beam_size: int, ends: int = 1) -> int:
    """Return how many continuations of each row a search looks at, if so many tokens end it."""
    return max(2, 1 + ends) * beam_size


class BeamSearch:
    """The live beams and the finished hypotheses of one sequence (the rules of `model.decoding.beam_search`)."""

    def __init__(self, params: BeamParams, end: int) -> None:
        self.params = params
        self._ends = params.stop_ids | {end}
        self._has_grammar = params.constraints.grammar is not None
        self.beams: list[list[int]] = [[]]
        self._totals = np.zeros(1)
        self._shown: set[Hashable] = set()  # by those that have finished at a stop text
        self._finished: list[Hypothesis] = []  # beam_size at most, best first
        self._agreed = 0

    @property
    def is_finished(self) -> bool:
        """Whether the search has its result."""
        return not self.beams

    @property
    def candidates(self) -> int:
        """How many continuations of each row it looks at."""
        return candidates_of(self.params.beam_size, len(self._ends))

    def advance(self, continuations: Candidates, completes: Completes | None = None) -> list[int]:
        """Take one step; return, for each new beam, the row it continues. No beam is left when the search is over.

        `completes` tells whether a row has its grammar's whole form with a token, so that nothing may follow.
        """
        size = self.params.beam_size
        totals = self._totals[:, None] + continuations.log_probabilities
        totals[np.isnan(totals)] = -np.inf  # of a row whose numbers overflowed: others can go on
        order = _largest(totals.ravel(), self.candidates)
        length = len(self.beams[0]) + 1
        is_last = length == self.params.max_tokens
        parents: list[int] = []
        beams: list[list[int]] = []
        kept: list[float] = []
        looked_at = 0  # behind the beam_size likeliest, that are no ends
        for rank, place in enumerate(order.tolist()):
            row, column = divmod(place, totals.shape[1])
            token, total = int(continuations.ids[row, column]), float(totals[row, column])
            if total == -np.inf and (beams or self._finished or self._has_grammar):  # it may not come; others can
                break
            if rank >= size and (is_last or len(beams) == size or looked_at == MAX_LOOKED_AT * size):
                break  # nothing behind can live on, or finish
            ends = token in self._ends
            looked_at += rank >= size and not ends
            is_whole = completes is not None and not ends and completes(row, token)
            if not ends and (shown := self._shown_to_stop(row, token)) is not None:
                if shown in self._shown:  # the likeliest with this text has finished
                    continue
                is_whole = True
                if rank < size:
                    self._shown.add(shown)
            if ends or is_last or is_whole:
                if rank < size:
                    self._finish([*self.beams[row], token], total, is_whole=is_whole)
            elif len(beams) < size:
                parents.append(row)
                beams.append([*self.beams[row], token])
                kept.append(total)
        if not beams and not self._finished:
            self._give_up()
        if is_last or self._is_decided(max(kept, default=-np.inf), length):
            parents, beams, kept = [], [], []
        self.beams, self._totals = beams, np.array(kept)
        return parents

    def _shown_to_stop(self, row: int, token: int) -> Hashable | None:
        return None if self.params.ends_text is None else self.params.ends_text(self.beams[row], token)

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
        return self._finished[: self.params.n_best]

    def _is_decided(self, best_total: float, length: int) -> bool:
        """Whether the search ends by its own rule, or no live beam can come among the n_best any more.

        A live beam's score is highest if it ends with certainty, at the next step or, as log p ≤ 0, at the very last;
        unless biases and penalties may make more of it than a probability.
        """
        params, finished = self.params, self._finished
        if len(finished) == params.beam_size:
            reaches = params.max_tokens if params.early_stopping == "never" and params.length_penalty > 0 else length
            if params.early_stopping is True or self._score(best_total, reaches) <= finished[-1].score:
                return True
        if len(finished) < params.n_best or params.constraints.may_add:
            return False
        best = max(self._score(best_total, at) for at in (length + 1, params.max_tokens))
        return finished[params.n_best - 1].score >= best

    def _finish(self, ids: list[int], total: float, *, is_whole: bool) -> None:
        """Add a hypothesis; ids with the end token, if it has one, as what has its grammar's whole form need not."""
        ends, length = ids[-1] in self._ends, len(ids)
        was_forced = length == self.params.max_tokens and ids[-1] == self.params.constraints.forced_end
        reason: Literal["stop", "length"] = "stop" if is_whole or (ends and not was_forced) else "length"
        self._keep(Hypothesis(ids[:-1] if ends else ids, self._score(total, length), reason))

    def _give_up(self) -> None:
        """Finish the live beams as they are: none of their grammars lets anything follow."""
        for ids, total in zip(self.beams, self._totals.tolist(), strict=True):
            self._keep(Hypothesis(ids, self._score(total, max(1, len(ids))), "grammar"))

    def _keep(self, found: Hypothesis) -> None:
        self._finished = sorted([*self._finished, found], key=lambda each: -each.score)[: self.params.beam_size]

    def _score(self, total: float, length: int) -> float:
        return total / float(length**self.params.length_penalty)


def _largest(values: NDArray[np.float64], count: int) -> NDArray[np.int64]:
    """Return the places of the `count` largest, in falling order; of equals those that stand first."""
    if len(values) > count:
        least = np.partition(values, -count)[-count]
        places = np.flatnonzero(values >= least)  # with many that end a search, few of all
        return places[np.argsort(-values[places], kind="stable")][:count]
    return np.argsort(-values, kind="stable")
